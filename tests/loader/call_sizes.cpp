// Calls a program with vectors of every size but the right one, for test_program.py.
//
// call_sizes PLUGIN PROGRAM: prints the error of each call, and that the right sizes work.
#include <cstdio>

#include "pjrt.hpp"

template <typename Act>
static void attempt(Act act) {
  try {
    act();
    std::printf("done\n");
  } catch (const pjrt::Error &error) {
    std::printf("%s\n", error.what());
  }
}

int main(int, char **argv) {
  pjrt::Plugin plugin(argv[1]);
  pjrt::Program program(argv[2]);
  pjrt::Client client(plugin.api());
  pjrt::Executable executable(client, program);
  pjrt::Call call(executable);
  const size_t takes = program.num_parameters(), gives = program.num_results();
  std::vector<std::vector<char>> made;
  std::vector<const void *> arguments;
  std::vector<void *> results;
  std::vector<pjrt::Buffer> buffers;
  std::vector<PJRT_Buffer *> given;
  for (size_t i = 0; i < takes; i++) {
    arguments.push_back(made.emplace_back(program.parameter(i).nbytes).data());
    given.push_back(buffers.emplace_back(client, executable, i, arguments[i]).get());
  }
  for (size_t i = 0; i < gives; i++)
    results.push_back(made.emplace_back(program.result(i).nbytes).data());

  const std::vector<const void *> few(arguments.begin(), arguments.end() - 1);
  attempt([&] { call(arguments, results); });
  attempt([&] { call(few, results); });
  attempt([&] { call(arguments, {}); });
  attempt([&] { call(client, given, gives); });
  attempt([&] { call(client, {}, gives); });
  attempt([&] { call(client, given, gives + 1); });
}
