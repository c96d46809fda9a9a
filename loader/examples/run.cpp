// Runs a program on a plugin: run PLUGIN PROGRAM [ARRAY ...]. Arrays are files of raw elements;
// prints the elements of the results, which must be f32.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "pjrt.hpp"

static std::vector<char> read(const char *path, size_t nbytes) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() != nbytes) throw pjrt::Error(std::string(path) + " has another size");
  return bytes;
}

static int run(int argc, char **argv) {
  pjrt::Plugin plugin(argv[1]);
  pjrt::Program program(argv[2]);
  if (program.num_parameters() != size_t(argc - 3)) throw pjrt::Error("wrong number of arrays");
  pjrt::Client client(plugin.api());
  pjrt::Executable executable(client, program);
  pjrt::Call call(executable);

  std::vector<std::vector<char>> given;
  std::vector<const void *> arguments;
  for (size_t i = 0; i < program.num_parameters(); i++) {
    given.push_back(read(argv[3 + i], program.parameter(i).nbytes));
    arguments.push_back(given.back().data());
  }
  std::vector<std::vector<float>> made;
  std::vector<void *> results;
  for (size_t i = 0; i < program.num_results(); i++) {
    if (program.result(i).type != 11) throw pjrt::Error("a result is not f32");
    made.emplace_back(program.result(i).nbytes / sizeof(float));
    results.push_back(made.back().data());
  }
  call(arguments, results);
  for (const auto &result : made)
    for (float element : result) std::printf("%.9g\n", element);
  return 0;
}

int main(int argc, char **argv) {
  try {
    if (argc >= 3) return run(argc, argv);
    std::fprintf(stderr, "usage: run PLUGIN PROGRAM [ARRAY ...]\n");
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
