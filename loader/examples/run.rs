//! Runs a program on a plugin: run PLUGIN PROGRAM [ARRAY ...]. Arrays are files of raw elements;
//! prints the elements of the results, which must be f32.
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::{null, null_mut};
type Handle = *mut c_void;
#[repr(C)]
struct Value {
    name: *const c_char,
    element_type: c_int,
    num_dims: usize,
    dims: *const i64,
    nbytes: usize,
}

extern "C" {
    fn pjrt_loader_open(path: *const c_char, settings: *const c_void, error: *mut *mut c_char) -> Handle;
    fn pjrt_loader_api(plugin: Handle) -> Handle;
    fn pjrt_program_read(path: *const c_char, error: *mut *mut c_char) -> Handle;
    fn pjrt_program_num_parameters(program: Handle) -> usize;
    fn pjrt_program_num_results(program: Handle) -> usize;
    fn pjrt_program_parameters(program: Handle) -> *const Value;
    fn pjrt_program_results(program: Handle) -> *const Value;
    fn pjrt_program_client_create(api: Handle, options: *const c_void, count: usize, error: *mut *mut c_char) -> Handle;
    fn pjrt_program_compile(client: Handle, program: Handle, error: *mut *mut c_char) -> Handle;
    fn pjrt_program_call_create(executable: Handle, error: *mut *mut c_char) -> Handle;
    fn pjrt_program_call_arrays(call: Handle, arguments: *const *const u8, results: *const *mut f32, error: *mut *mut c_char) -> c_int;
}

unsafe fn require(is_right: bool, error: *mut c_char) {
    assert!(is_right, "{}", CStr::from_ptr(error).to_string_lossy());
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let paths: Vec<CString> = args.iter().map(|each| CString::new(each.as_str()).unwrap()).collect();
    let mut error: *mut c_char = null_mut();
    // What a process opens until it ends may stay open; a longer one frees each of these.
    unsafe {
        let plugin = pjrt_loader_open(paths[1].as_ptr(), null(), &mut error);
        require(!plugin.is_null(), error);
        let program = pjrt_program_read(paths[2].as_ptr(), &mut error);
        require(!program.is_null(), error);
        let takes = std::slice::from_raw_parts(pjrt_program_parameters(program), pjrt_program_num_parameters(program));
        let gives = std::slice::from_raw_parts(pjrt_program_results(program), pjrt_program_num_results(program));
        let client = pjrt_program_client_create(pjrt_loader_api(plugin), null(), 0, &mut error);
        require(!client.is_null(), error);
        let executable = pjrt_program_compile(client, program, &mut error);
        require(!executable.is_null(), error);
        let call = pjrt_program_call_create(executable, &mut error);
        require(!call.is_null(), error);
        let given: Vec<Vec<u8>> = args[3..].iter().map(|path| std::fs::read(path).unwrap()).collect();
        assert!(given.iter().map(Vec::len).eq(takes.iter().map(|each| each.nbytes)), "wrong arrays");
        assert!(gives.iter().all(|each| each.element_type == 11), "a result is not f32");
        let mut made: Vec<Vec<f32>> = gives.iter().map(|each| vec![0.0; each.nbytes / 4]).collect();
        let arguments: Vec<*const u8> = given.iter().map(|each| each.as_ptr()).collect();
        let results: Vec<*mut f32> = made.iter_mut().map(|each| each.as_mut_ptr()).collect();
        require(pjrt_program_call_arrays(call, arguments.as_ptr(), results.as_ptr(), &mut error) == 0, error);
        made.iter().flatten().for_each(|element| println!("{element:e}"));
    }
}
