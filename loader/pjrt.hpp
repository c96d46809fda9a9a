// A thin layer of C++17 over pjrt_program.h and pjrt_loader.h: objects that free what they own, and
// errors as exceptions. What is not here is called through get() and the C functions.
#ifndef PJRT_HPP
#define PJRT_HPP

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "pjrt_loader.h"
#include "pjrt_program.h"

namespace pjrt {

struct Error : std::runtime_error { using runtime_error::runtime_error; };

namespace detail {
template <auto function>
struct Free {
  template <typename T>
  void operator()(T *object) const { function(object); }
};

// Takes the error's text of a function, and throws it.
template <auto free_error>
class Failure {
 public:
  operator char **() { return &text_; }
  void raise_if(bool failed) {
    if (!failed) return;
    std::string text = text_ != nullptr ? text_ : "an unknown error";
    free_error(text_);
    throw Error(text);
  }

 private:
  char *text_ = nullptr;
};
using ProgramFailure = Failure<pjrt_program_free_error>;
}  // namespace detail

// A plugin that is open until this ends; its table stays.
class Plugin {
 public:
  // Opens what pjrt_loader_open() takes: a name, a platform, an alias or a path; "" is the best one.
  explicit Plugin(const std::string &what = "") {
    detail::Failure<pjrt_loader_free_error> failure;
    plugin_.reset(pjrt_loader_open(what.c_str(), nullptr, failure));
    failure.raise_if(!plugin_);
  }
  const PJRT_Api *api() const { return pjrt_loader_api(plugin_.get()); }
  const pjrt_loader_plugin *get() const { return plugin_.get(); }

 private:
  std::unique_ptr<pjrt_loader_plugin, detail::Free<pjrt_loader_close>> plugin_;
};

class Client {
 public:
  explicit Client(const PJRT_Api *api, const std::vector<pjrt_program_option> &options = {}) {
    detail::ProgramFailure failure;
    client_.reset(pjrt_program_client_create(api, options.data(), options.size(), failure));
    failure.raise_if(!client_);
  }
  pjrt_program_client *get() const { return client_.get(); }

 private:
  std::unique_ptr<pjrt_program_client, detail::Free<pjrt_program_client_free>> client_;
};

class Program {
 public:
  explicit Program(const std::string &path) {
    detail::ProgramFailure failure;
    program_.reset(pjrt_program_read(path.c_str(), failure));
    failure.raise_if(!program_);
  }
  size_t num_parameters() const { return pjrt_program_num_parameters(get()); }
  size_t num_results() const { return pjrt_program_num_results(get()); }
  const pjrt_program_value &parameter(size_t i) const { return pjrt_program_parameters(get())[i]; }
  const pjrt_program_value &result(size_t i) const { return pjrt_program_results(get())[i]; }
  const pjrt_program *get() const { return program_.get(); }

 private:
  std::unique_ptr<pjrt_program, detail::Free<pjrt_program_free>> program_;
};

class Executable {
 public:
  Executable(const Client &client, const Program &program) {
    detail::ProgramFailure failure;
    executable_.reset(pjrt_program_compile(client.get(), program.get(), failure));
    failure.raise_if(!executable_);
    num_parameters_ = program.num_parameters();
    num_results_ = program.num_results();
  }
  size_t num_parameters() const { return num_parameters_; }
  size_t num_results() const { return num_results_; }
  pjrt_program_executable *get() const { return executable_.get(); }

 private:
  size_t num_parameters_, num_results_;
  std::unique_ptr<pjrt_program_executable, detail::Free<pjrt_program_executable_free>> executable_;
};

// An array on a device.
class Buffer {
 public:
  Buffer(const Client &client, PJRT_Buffer *taken) : buffer_(taken, Free{client.get()}) {}
  // Copies a host array to where the parameter `number` belongs.
  Buffer(const Client &client, const Executable &executable, size_t number, const void *data)
      : buffer_(nullptr, Free{client.get()}) {
    detail::ProgramFailure failure;
    buffer_.reset(pjrt_program_put(executable.get(), number, data, failure));
    failure.raise_if(!buffer_);
  }
  void copy_to(void *data, size_t nbytes) const {
    detail::ProgramFailure failure;
    auto *client = buffer_.get_deleter().client;
    failure.raise_if(pjrt_program_get(client, get(), data, nbytes, failure) != 0);
  }
  PJRT_Buffer *get() const { return buffer_.get(); }

 private:
  struct Free {
    pjrt_program_client *client;
    void operator()(PJRT_Buffer *buffer) const { pjrt_program_buffer_free(client, buffer); }
  };
  std::unique_ptr<PJRT_Buffer, Free> buffer_;
};

// What the calls of one thread reuse.
class Call {
 public:
  explicit Call(const Executable &executable)
      : num_parameters_(executable.num_parameters()), num_results_(executable.num_results()) {
    detail::ProgramFailure failure;
    call_.reset(pjrt_program_call_create(executable.get(), failure));
    failure.raise_if(!call_);
  }
  // Copies host arrays in and out.
  void operator()(const std::vector<const void *> &arguments, const std::vector<void *> &results) {
    check(arguments.size(), results.size());
    detail::ProgramFailure failure;
    auto *given = arguments.data();
    failure.raise_if(pjrt_program_call_arrays(get(), given, results.data(), failure) != 0);
  }
  // Runs on buffers, and gives those of the results before they have their values.
  std::vector<Buffer> operator()(const Client &client, const std::vector<PJRT_Buffer *> &arguments,
                                 size_t num_results) {
    check(arguments.size(), num_results);
    detail::ProgramFailure failure;
    std::vector<PJRT_Buffer *> made(num_results);
    auto *given = arguments.data();
    failure.raise_if(pjrt_program_call_buffers(get(), given, made.data(), failure) != 0);
    std::vector<Buffer> results;
    for (auto *each : made) results.emplace_back(client, each);
    return results;
  }
  pjrt_program_call *get() const { return call_.get(); }

 private:
  void check(size_t num_arguments, size_t num_results) const {
    if (num_arguments == num_parameters_ && num_results == num_results_) return;
    throw Error("the program takes " + std::to_string(num_parameters_) + " argument(s) and gives " +
                std::to_string(num_results_) + " result(s); the call has " +
                std::to_string(num_arguments) + " and " + std::to_string(num_results));
  }

  size_t num_parameters_, num_results_;
  std::unique_ptr<pjrt_program_call, detail::Free<pjrt_program_call_free>> call_;
};

}  // namespace pjrt
#endif
