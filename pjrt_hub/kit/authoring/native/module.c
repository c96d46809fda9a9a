/* The module, which makes tables and records calls. */
#include "plugin.h"

/* table(bridge, attributes, asynchronous, own_memory) -> the address of a PJRT_Api. */
static PyObject *table(PyObject *module, PyObject *args) {
  PyObject *bridge, *attributes;
  int asynchronous, own_memory;
  if (!PyArg_ParseTuple(args, "OOpp", &bridge, &attributes, &asynchronous, &own_memory)) return NULL;
  Plugin *plugin = PLUGIN_NEW(Plugin, 1);
  plugin->asynchronous = asynchronous;
  plugin->host_memory = !own_memory;
  plugin->any_thread = true; /* No thread may be waited for, because the caller may hold Python's lock. */
  bool well = named_values(&plugin->arena, attributes, &plugin->attributes, &plugin->num_attributes);
  const PJRT_Api *api = well ? table_new(plugin) : NULL;
  if (api == NULL) {
    plugin_arena_end(&plugin->arena);
    free(plugin);
    if (!well) return NULL;
    return PyErr_Format(PyExc_RuntimeError, "this process has %d plugins in Python already", PLUGINS);
  }
  plugin->bridge = Py_NewRef(bridge);
  return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)api);
}

/* capsule(address) -> a capsule that JAX takes as c_api. */
static PyObject *capsule(PyObject *module, PyObject *address) {
  unsigned long long api = PyLong_AsUnsignedLongLong(address);
  if (PyErr_Occurred()) return NULL;
  return PyCapsule_New((void *)(uintptr_t)api, "pjrt_c_api", NULL);
}

static PyMethodDef functions[] = {
    {"table", table, METH_VARARGS,
     "table(bridge, attributes, asynchronous, own_memory) -> the address of a PJRT_Api."},
    {"capsule", capsule, METH_O, "capsule(address): what JAX registers as c_api."},
    {"end", upcalls_end, METH_O, "end(seconds): from here on nothing asks Python."},
    {"record_begins", record_begins, METH_NOARGS, "Forgets calls and faults, and counts calls."},
    {"record_ends", record_ends, METH_NOARGS, "Neither counts nor fails calls any more."},
    {"recorded", recorded, METH_NOARGS, "The functions that were called, in their order."},
    {"fault", fault, METH_VARARGS,
     "fault(function, first, last, code, dropped, milliseconds, text)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_plugin",
    .m_doc = "PJRT_Api tables whose backends are in Python.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__plugin(void) {
  StorageType = (PyTypeObject *)PyType_FromSpec(&storage_spec);
  if (StorageType == NULL) return NULL;
  pthread_atfork(NULL, NULL, upcall_reset);
  PyObject *module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED /* Backends and the files here rely on the GIL. */
  if (module != NULL && PyUnstable_Module_SetGIL(module, Py_MOD_GIL_USED) < 0) Py_CLEAR(module);
#endif
  return module;
}
