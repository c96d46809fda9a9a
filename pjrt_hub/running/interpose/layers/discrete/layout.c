/* Layouts that the plugin reports and accepts, with tiles where the setting `tiled` says so. */
#include <stdio.h>

#include "discrete.h"

enum { LAYOUT_TEXT = 160, TILES_TEXT = 64 };

/* The layouts and tiles that the host holds. Equal ones are shared and never freed. */
typedef struct Layout Layout;
struct Layout {
  Layout *next;
  char text[LAYOUT_TEXT];
};

typedef struct Tiles Tiles;
struct Tiles {
  Tiles *next;
  size_t count, ranks[MOST_TILES];
  int64_t dims[2 * MOST_TILES];
};

/* The layouts of an executable's outputs, which the executable owns. */
typedef struct Outputs Outputs;
struct Outputs {
  Outputs *next;
  PJRT_Executable *executable;
  PJRT_Layouts_MemoryLayout *layouts[];
};

static Layout *all_layouts;
static Tiles *all_tiles;
static Outputs *all_outputs;

static PJRT_Layouts_MemoryLayout *keep_layout(const char *text) {
  schedule_lock();
  Layout *layout = all_layouts;
  while (layout != NULL && strcmp(layout->text, text) != 0) layout = layout->next;
  if (layout == NULL) {
    layout = take(sizeof *layout);
    memcpy(layout->text, text, strlen(text));
    layout->next = all_layouts;
    all_layouts = layout;
  }
  schedule_unlock();
  return (PJRT_Layouts_MemoryLayout *)layout;
}

/* Returns whether a handle is one of these layouts, not one of the plugin's. */
static bool is_ours(const PJRT_Layouts_MemoryLayout *handle) {
  schedule_lock();
  const Layout *layout = all_layouts;
  while (layout != NULL && layout != (const Layout *)handle) layout = layout->next;
  schedule_unlock();
  return layout != NULL;
}

static const Tiles *keep_tiles(const Tiling *tiling) {
  schedule_lock();
  Tiles *tiles = all_tiles;
  while (tiles != NULL && (memcmp(tiles->ranks, tiling->tile_ranks, sizeof tiles->ranks) != 0 ||
                           memcmp(tiles->dims, tiling->tile_dims, sizeof tiles->dims) != 0))
    tiles = tiles->next;
  if (tiles == NULL) {
    tiles = take(sizeof *tiles);
    tiles->count = tiling->num_tiles;
    memcpy(tiles->ranks, tiling->tile_ranks, sizeof tiles->ranks);
    memcpy(tiles->dims, tiling->tile_dims, sizeof tiles->dims);
    tiles->next = all_tiles;
    all_tiles = tiles;
  }
  schedule_unlock();
  return tiles;
}

/* Buffers */

static bool is_plain(const PJRT_Buffer_MemoryLayout *layout) {
  return layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled && layout->tiled.num_tiles == 0;
}

void layout_tile(PJRT_Buffer_MemoryLayout *layout, PJRT_Buffer_Type type, const int64_t *dims) {
  Tiling tiling;
  PJRT_Buffer_MemoryLayout_Tiled *tiled = &layout->tiled;
  if (!settings.tiled || !is_plain(layout) ||
      !tiling_find(&tiling, type, dims, tiled->minor_to_major_size, tiled->minor_to_major))
    return;
  const Tiles *tiles = keep_tiles(&tiling);
  tiled->num_tiles = tiles->count;
  tiled->tile_dim_sizes = tiles->ranks;
  tiled->tile_dims = tiles->dims;
}

/* Finds the tiles of a plugin's buffer. Returns false if it gets none or has tiles of its own. */
static bool find_tiling(Plugin *plugin, PJRT_Buffer *real, Tiling *tiling) {
  SIZED(PJRT_Buffer_ElementType_Args, type, .buffer = real);
  SIZED(PJRT_Buffer_Dimensions_Args, dims, .buffer = real);
  SIZED(PJRT_Buffer_GetMemoryLayout_Args, told, .buffer = real);
  if (!settings.tiled || !ask(plugin, FN_PJRT_Buffer_ElementType, &type) ||
      !ask(plugin, FN_PJRT_Buffer_Dimensions, &dims) ||
      !ask(plugin, FN_PJRT_Buffer_GetMemoryLayout, &told))
    return false;
  return is_plain(&told.layout) && told.layout.tiled.minor_to_major_size == dims.num_dims &&
         tiling_find(tiling, type.type, dims.dims, dims.num_dims,
                     told.layout.tiled.minor_to_major);
}

static bool is_dynamic(Plugin *plugin, PJRT_Buffer *real) {
  SIZED(PJRT_Buffer_DynamicDimensionIndices_Args, args, .buffer = real);
  return ask(plugin, FN_PJRT_Buffer_DynamicDimensionIndices, &args) && args.num_dynamic_dims > 0;
}

/* Finds how many bytes a buffer has on the device. Returns false if that is unknown. */
bool layout_nbytes(Plugin *plugin, PJRT_Buffer *real, size_t *nbytes) {
  Tiling tiling;
  SIZED(PJRT_Buffer_OnDeviceSizeInBytes_Args, size, .buffer = real);
  bool tiled = find_tiling(plugin, real, &tiling);
  if (!tiled && !ask(plugin, FN_PJRT_Buffer_OnDeviceSizeInBytes, &size)) return false;
  *nbytes = tiled ? tiling.nbytes : size.on_device_size_in_bytes;
  return true;
}

static PJRT_Error *tell_nbytes(Plugin *plugin, PJRT_Buffer_OnDeviceSizeInBytes_Args *args) {
  PJRT_Error *error = plugin->real[FN_PJRT_Buffer_OnDeviceSizeInBytes](args);
  if (error == NULL) layout_nbytes(plugin, args->buffer, &args->on_device_size_in_bytes);
  return error;
}

static PJRT_Error *tell_layout(Plugin *plugin, PJRT_Buffer_GetMemoryLayout_Args *args) {
  SIZED(PJRT_Buffer_ElementType_Args, type, .buffer = args->buffer);
  SIZED(PJRT_Buffer_Dimensions_Args, dims, .buffer = args->buffer);
  PJRT_Error *error = plugin->real[FN_PJRT_Buffer_GetMemoryLayout](args);
  if (error == NULL && ask(plugin, FN_PJRT_Buffer_ElementType, &type) &&
      ask(plugin, FN_PJRT_Buffer_Dimensions, &dims) &&
      args->layout.tiled.minor_to_major_size == dims.num_dims)
    layout_tile(&args->layout, type.type, dims.dims);
  return error;
}

static PJRT_Error *copy_raw(Plugin *plugin, PJRT_Buffer_CopyRawToHost_Args *args) {
  Tiling tiling;
  bool tiled = find_tiling(plugin, args->buffer, &tiling);
  if (tiled && is_dynamic(plugin, args->buffer))
    return refuse_text(PJRT_Error_Code_UNIMPLEMENTED, "raw bytes of an array with dynamic dimensions");
  return transfer_raw(plugin, tiled ? &tiling : NULL, args);
}

/* Wishes: the layouts that the host requests for new arrays */

typedef struct {
  PJRT_Buffer_MemoryLayout **slot;
  PJRT_Buffer_Type type;
  const int64_t *dims;
  size_t num_dims;
} Wish;

/* Returns the call's wish with this number. After the last wish, its `slot` is NULL. */
static Wish wish_of(unsigned function, void *args, size_t number) {
  PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *many = args;
  PJRT_Client_BufferFromHostBuffer_Args *array = args;
  PJRT_Client_CreateUninitializedBuffer_Args *empty = args;
  PJRT_Client_CreateAliasBuffer_Args *alias = args;
  PJRT_Client_CreateErrorBuffer_Args *failed = args;
  if (function == FN_PJRT_Client_CreateBuffersForAsyncHostToDevice) {
    if (number >= many->num_device_layouts || number >= many->num_shape_specs) return (Wish){NULL};
    const PJRT_ShapeSpec *spec = &many->shape_specs[number];
    return (Wish){&many->device_layouts[number], spec->element_type, spec->dims, spec->num_dims};
  }
  if (number > 0) return (Wish){NULL};
  switch (function) {
    case FN_PJRT_Client_BufferFromHostBuffer:
      return (Wish){&array->device_layout, array->type, array->dims, array->num_dims};
    case FN_PJRT_Client_CreateUninitializedBuffer:
      return (Wish){&empty->shape_layout, empty->shape_element_type, empty->shape_dims,
                    empty->shape_num_dims};
    case FN_PJRT_Client_CreateAliasBuffer:
      return (Wish){&alias->shape_layout, alias->shape_element_type, alias->shape_dims,
                    alias->shape_num_dims};
    default: /* This is CreateErrorBuffer. */
      return (Wish){&failed->shape_layout, failed->shape_element_type, failed->shape_dims,
                    failed->shape_num_dims};
  }
}

/* Returns whether the tiles that the host wishes for are those that the array gets. */
static bool is_granted(const Wish *wish) {
  Tiling tiling;
  const PJRT_Buffer_MemoryLayout *layout = *wish->slot;
  const int64_t *order = tiling_order(layout, wish->num_dims);
  if (!tiling_find(&tiling, wish->type, wish->dims, wish->num_dims, order)) return false;
  size_t count = 0;
  for (size_t i = 0; i < tiling.num_tiles; i++) count += tiling.tile_ranks[i];
  return layout->tiled.num_tiles == tiling.num_tiles &&
         memcmp(layout->tiled.tile_dim_sizes, tiling.tile_ranks,
                tiling.num_tiles * sizeof *tiling.tile_ranks) == 0 &&
         memcmp(layout->tiled.tile_dims, tiling.tile_dims, count * sizeof *tiling.tile_dims) == 0;
}

/* Makes arrays. The tiles are removed from the wishes, because the plugin has none. */
static PJRT_Error *make(Plugin *plugin, unsigned function, void *args) {
  size_t count = 0;
  while (wish_of(function, args, count).slot != NULL) count++;
  PJRT_Buffer_MemoryLayout *plain = take((count + 1) * sizeof *plain);
  PJRT_Buffer_MemoryLayout **wished = take((count + 1) * sizeof *wished);
  bool granted = true;
  for (size_t i = 0; i < count; i++) {
    Wish wish = wish_of(function, args, i);
    wished[i] = *wish.slot;
    if (wished[i] == NULL || wished[i]->type != PJRT_Buffer_MemoryLayout_Type_Tiled ||
        wished[i]->tiled.num_tiles == 0)
      continue;
    granted &= is_granted(&wish);
    plain[i] = *wished[i];
    plain[i].tiled.num_tiles = 0;
    *wish.slot = &plain[i];
  }
  PJRT_Error *error =
      granted ? plugin->real[function](args)
              : refuse_text(PJRT_Error_Code_INVALID_ARGUMENT, "the device has other tiles for the array");
  for (size_t i = 0; i < count; i++) *wish_of(function, args, i).slot = wished[i];
  free(plain);
  free(wished);
  if (error == NULL && function == FN_PJRT_Client_CreateBuffersForAsyncHostToDevice)
    transfer_begin(args);
  return error;
}

/* Returns how many bytes an array of the host will have on a device. */
size_t layout_nbytes_of(const PJRT_Client_BufferFromHostBuffer_Args *args) {
  Tiling tiling;
  size_t bits = bits_of(args->type);
  const int64_t *order = tiling_order(args->device_layout, args->num_dims);
  if (settings.tiled && tiling_find(&tiling, args->type, args->dims, args->num_dims, order))
    return tiling.nbytes;
  for (size_t i = 0; i < args->num_dims; i++) bits *= (size_t)args->dims[i];
  return (bits + 7) / 8;
}

/* The extension Layouts: with tiles, the host's handles are `Layout`s, never the plugin's */

/* Adds the tiles to an order such as "{1,0}" and returns the handle of "{1,0:T(8,128)}". */
static PJRT_Layouts_MemoryLayout *keep_tiled(char text[LAYOUT_TEXT], PJRT_Buffer_Type type,
                                             const int64_t *dims, size_t num_dims,
                                             const int64_t *order) {
  char tiles[TILES_TEXT];
  Tiling tiling;
  if (!settings.tiled || !tiling_find(&tiling, type, dims, num_dims, order))
    return keep_layout(text);
  tiling_write(&tiling, tiles, sizeof tiles);
  size_t length = strcspn(text, ":}");
  snprintf(text + length, LAYOUT_TEXT - length, ":%s}", tiles);
  return keep_layout(text);
}

/* Returns the layout of an array that will never exist. */
PJRT_Layouts_MemoryLayout *layout_of(const Description *like) {
  char text[LAYOUT_TEXT] = "{";
  size_t length = 1;
  for (size_t i = 0; i < like->num_dims && length < LAYOUT_TEXT - TILES_TEXT; i++)
    length += (size_t)sprintf(text + length, i > 0 ? ",%d" : "%d", (int)like->minor_to_major[i]);
  text[length] = '}';
  return keep_tiled(text, like->type, like->dims, like->num_dims, like->minor_to_major);
}

/* Reads a layout of the plugin and returns the host's handle for it, with tiles. */
static PJRT_Layouts_MemoryLayout *with_tiles(Plugin *plugin, PJRT_Layouts_MemoryLayout *real,
                                             PJRT_Buffer_Type type, const int64_t *dims,
                                             size_t num_dims) {
  char text[LAYOUT_TEXT] = "{}";
  int64_t order[MOST_RANK];
  size_t count = 0;
  SIZED(PJRT_Layouts_MemoryLayout_Serialize_Args, told, .layout = real);
  if (ask(plugin, FN_PJRT_Layouts_MemoryLayout_Serialize, &told)) {
    if (told.serialized_bytes_size < sizeof text) {
      memset(text, 0, sizeof text);
      memcpy(text, told.serialized_bytes, told.serialized_bytes_size);
    }
    if (told.serialized_layout_deleter != NULL)
      told.serialized_layout_deleter(told.serialized_layout);
  }
  for (char *at = text + 1; count < MOST_RANK && *at >= '0' && *at <= '9'; at += *at == ',')
    order[count++] = strtoll(at, &at, 10);
  if (strstr(text, "T(") != NULL || count != num_dims) return keep_layout(text);
  return keep_tiled(text, type, dims, num_dims, order);
}

/* Does what with_tiles does, and destroys the plugin's layout. */
static PJRT_Layouts_MemoryLayout *take_with_tiles(Plugin *plugin, PJRT_Layouts_MemoryLayout *real,
                                                  PJRT_Buffer_Type type, const int64_t *dims,
                                                  size_t num_dims) {
  PJRT_Layouts_MemoryLayout *layout = with_tiles(plugin, real, type, dims, num_dims);
  TELL(plugin, Layouts_MemoryLayout_Destroy, .layout = real);
  return layout;
}

static void nothing_to_free(PJRT_Layouts_SerializedLayout *layout) { (void)layout; }

static void serialize(PJRT_Layouts_MemoryLayout_Serialize_Args *args) {
  const Layout *layout = (const Layout *)args->layout;
  args->serialized_bytes = layout->text;
  args->serialized_bytes_size = strlen(layout->text);
  args->serialized_layout = (PJRT_Layouts_SerializedLayout *)args->layout;
  args->serialized_layout_deleter = nothing_to_free;
}

static Outputs **place_of(PJRT_Executable *executable) {
  Outputs **at = &all_outputs;
  while (*at != NULL && (*at)->executable != executable) at = &(*at)->next;
  return at;
}

static void forget_outputs(PJRT_Executable *executable) {
  schedule_lock();
  Outputs **at = place_of(executable), *outputs = *at;
  if (outputs != NULL) *at = outputs->next;
  schedule_unlock();
  free(outputs);
}

static PJRT_Error *tell_outputs(Plugin *plugin,
                                PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args *args) {
  PJRT_Error *error = plugin->real[FN_PJRT_Layouts_PJRT_Executable_GetOutputLayouts](args);
  if (error != NULL) return error;
  SIZED(PJRT_Executable_OutputElementTypes_Args, types, .executable = args->executable);
  SIZED(PJRT_Executable_OutputDimensions_Args, dims, .executable = args->executable);
  if (!ask(plugin, FN_PJRT_Executable_OutputElementTypes, &types) ||
      !ask(plugin, FN_PJRT_Executable_OutputDimensions, &dims) ||
      types.num_output_types != args->num_outputs || dims.num_outputs != args->num_outputs)
    return refuse_text(PJRT_Error_Code_UNIMPLEMENTED, "tiles of outputs whose dimensions are not told");
  size_t count = args->num_outputs;
  Outputs *outputs = take(sizeof *outputs + count * sizeof *outputs->layouts);
  outputs->executable = args->executable;
  for (size_t i = 0, at = 0; i < count; at += dims.dim_sizes[i++])
    outputs->layouts[i] = with_tiles(plugin, args->layouts[i], types.output_types[i],
                                     dims.dims + at, dims.dim_sizes[i]);
  schedule_lock();
  Outputs **at = place_of(args->executable);
  if (*at == NULL) {
    *at = outputs;
    outputs = NULL;
  }
  args->layouts = (*at)->layouts;
  schedule_unlock();
  free(outputs);
  return NULL;
}

static PJRT_Error *of_layout(Plugin *plugin, unsigned function, void *args) {
  PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *of_client = args;
  PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args *of_topology = args;
  PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *of_buffer = args;
  PJRT_Error *error = plugin->real[function](args);
  if (error != NULL) return error;
  if (function == FN_PJRT_Layouts_PJRT_Client_GetDefaultLayout) {
    of_client->layout = take_with_tiles(plugin, of_client->layout, of_client->type,
                                        of_client->dims, of_client->num_dims);
  } else if (function == FN_PJRT_Layouts_PJRT_Topology_GetDefaultLayout) {
    of_topology->layout = take_with_tiles(plugin, of_topology->layout, of_topology->type,
                                          of_topology->dims, of_topology->num_dims);
  } else {
    SIZED(PJRT_Buffer_ElementType_Args, type, .buffer = of_buffer->buffer);
    SIZED(PJRT_Buffer_Dimensions_Args, dims, .buffer = of_buffer->buffer);
    bool known = ask(plugin, FN_PJRT_Buffer_ElementType, &type) &&
                 ask(plugin, FN_PJRT_Buffer_Dimensions, &dims);
    of_buffer->layout = take_with_tiles(plugin, of_buffer->layout, type.type, dims.dims,
                                        known ? dims.num_dims : SIZE_MAX);
  }
  return NULL;
}

/* Calls a function of the plugin, as if its arrays lay in tiles where the setting says so. */
PJRT_Error *layout_call(Plugin *plugin, unsigned function, void *args) {
  /* The arguments of both functions begin with the layout. */
  PJRT_Layouts_MemoryLayout_Destroy_Args *handle = args;
  bool serializes = function == FN_PJRT_Layouts_MemoryLayout_Serialize;
  if ((serializes || function == FN_PJRT_Layouts_MemoryLayout_Destroy) && is_ours(handle->layout)) {
    if (serializes) serialize(args);
    return NULL;
  }
  if (!settings.tiled) return plugin->real[function](args);
  PJRT_Error *error;
  switch (function) {
    case FN_PJRT_Buffer_OnDeviceSizeInBytes:
      return tell_nbytes(plugin, args);
    case FN_PJRT_Buffer_GetMemoryLayout:
      return tell_layout(plugin, args);
    case FN_PJRT_Buffer_CopyRawToHost:
      return copy_raw(plugin, args);
    case FN_PJRT_Client_BufferFromHostBuffer:
    case FN_PJRT_Client_CreateUninitializedBuffer:
    case FN_PJRT_Client_CreateAliasBuffer:
    case FN_PJRT_Client_CreateErrorBuffer:
    case FN_PJRT_Client_CreateBuffersForAsyncHostToDevice:
      return make(plugin, function, args);
    case FN_PJRT_AsyncHostToDeviceTransferManager_BufferSize: {
      PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args *size = args;
      error = plugin->real[function](args);
      size_t nbytes = transfer_nbytes(size->transfer_manager, size->buffer_index);
      if (error == NULL && nbytes > 0) size->buffer_size = nbytes;
      return error;
    }
    case FN_PJRT_AsyncHostToDeviceTransferManager_TransferData:
      return transfer_data(plugin, args);
    case FN_PJRT_AsyncHostToDeviceTransferManager_Destroy:
      transfer_end(((PJRT_AsyncHostToDeviceTransferManager_Destroy_Args *)args)->transfer_manager);
      break;
    case FN_PJRT_Layouts_PJRT_Client_GetDefaultLayout:
    case FN_PJRT_Layouts_PJRT_Topology_GetDefaultLayout:
    case FN_PJRT_Layouts_PJRT_Buffer_MemoryLayout:
      return of_layout(plugin, function, args);
    case FN_PJRT_Layouts_PJRT_Executable_GetOutputLayouts:
      return tell_outputs(plugin, args);
    case FN_PJRT_Executable_Destroy:
      forget_outputs(((PJRT_Executable_Destroy_Args *)args)->executable);
      break;
    case FN_PJRT_Layouts_PJRT_Executable_GetParameterLayouts: /* The dimensions are unknown. */
    case FN_PJRT_Client_CreateViewOfDeviceBuffer:
    case FN_PJRT_Buffer_CopyRawToHostFuture:
    case FN_PJRT_Buffer_Bitcast:
    case FN_PJRT_RawBuffer_CreateRawAliasOfBuffer:
      return refuse_text(PJRT_Error_Code_UNIMPLEMENTED, "the layer discrete does not do that with tiles");
    default:
      break;
  }
  return plugin->real[function](args);
}
