! Runs a program on a plugin: run PLUGIN PROGRAM [ARRAY ...]. Arrays are files of raw elements;
! prints the elements of the results, which must be f32.
program run
  use iso_c_binding
  implicit none
  type, bind(c) :: value; type(c_ptr) :: name; integer(c_int) :: element_type
    integer(c_size_t) :: num_dims; type(c_ptr) :: dims; integer(c_size_t) :: nbytes
  end type
  type array; integer(c_int8_t), allocatable :: bytes(:); real(c_float), allocatable :: elements(:); end type
  abstract interface
    type(c_ptr) function get(of) bind(c); import; type(c_ptr), value :: of; end
    integer(c_size_t) function count_of(of) bind(c); import; type(c_ptr), value :: of; end
    type(c_ptr) function make(of, error) bind(c); import; type(c_ptr), value :: of; type(c_ptr) :: error; end
    type(c_ptr) function make_with(of, with, error) bind(c); import; type(c_ptr), value :: of, with; type(c_ptr) :: error; end
    type(c_ptr) function connect(api, options, count, error) bind(c)
      import; type(c_ptr), value :: api, options; integer(c_size_t), value :: count; type(c_ptr) :: error; end
    integer(c_int) function run_on(call, arguments, results, error) bind(c)
      import; type(c_ptr), value :: call; type(c_ptr) :: arguments(*), results(*), error; end
  end interface
  procedure(get), bind(c) :: pjrt_loader_api, pjrt_program_parameters, pjrt_program_results
  procedure(count_of), bind(c) :: pjrt_program_num_parameters, pjrt_program_num_results
  procedure(make), bind(c) :: pjrt_program_read, pjrt_program_call_create
  procedure(make_with), bind(c) :: pjrt_loader_open, pjrt_program_compile
  procedure(connect), bind(c) :: pjrt_program_client_create
  procedure(run_on), bind(c) :: pjrt_program_call_arrays
  character(4096), target :: words(2), path
  type(c_ptr) :: error, plugin, file, client, executable, prepared
  type(value), pointer :: takes(:), gives(:)
  type(array), allocatable, target :: given(:), made(:)
  integer :: i, unit, nbytes, failed
  do i = 1, 2; call get_command_argument(i, words(i)); words(i) = trim(words(i)) // c_null_char; end do
  plugin = pjrt_loader_open(c_loc(words(1)), c_null_ptr, error); call check()
  file = pjrt_program_read(c_loc(words(2)), error); call check()
  client = pjrt_program_client_create(pjrt_loader_api(plugin), c_null_ptr, 0_c_size_t, error); call check()
  executable = pjrt_program_compile(client, file, error); call check()
  prepared = pjrt_program_call_create(executable, error); call check()
  call c_f_pointer(pjrt_program_parameters(file), takes, [pjrt_program_num_parameters(file)])
  call c_f_pointer(pjrt_program_results(file), gives, [pjrt_program_num_results(file)])
  if (size(takes) /= command_argument_count() - 2) error stop 'wrong number of arrays'
  if (any(gives%element_type /= 11)) error stop 'a result is not f32'
  allocate(given(size(takes)), made(size(gives)))
  do i = 1, size(takes)
    call get_command_argument(2 + i, path)
    open(newunit=unit, file=path, access='stream', form='unformatted', status='old')
    inquire(unit, size=nbytes); if (nbytes /= takes(i)%nbytes) error stop 'wrong size of an array'
    allocate(given(i)%bytes(nbytes)); read(unit) given(i)%bytes; close(unit)
  end do
  do i = 1, size(gives); allocate(made(i)%elements(gives(i)%nbytes / 4)); end do
  failed = pjrt_program_call_arrays(prepared, [(c_loc(given(i)%bytes), i = 1, size(given))], &
      [(c_loc(made(i)%elements), i = 1, size(made))], error); call check()
  print '(g0)', (made(i)%elements, i = 1, size(made))
contains
  subroutine check()
    character(c_char), pointer :: text(:)
    if (.not. c_associated(error)) return
    call c_f_pointer(error, text, [huge(0)])
    write (0, '(*(a))') text(:findloc(text, c_null_char, 1) - 1)
    stop 1
  end subroutine
end program
