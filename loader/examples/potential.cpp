// Molecular dynamics with a potential in a file: potential PLUGIN POTENTIAL ATOMS STEPS
//
// POTENTIAL is a program that takes `positions`, and may take `species`, `pairs` and `box`; it
// gives `energy`, `forces` and `virial`, in float32 or float64. Its arrays have room for so many
// atoms and pairs, and the rest is zero: the potential takes 0 and 0 for no pair.
//
// ATOMS is a text: the box's three lengths, the time step, the potential's cutoff, and the skin of
// the list of pairs; then for each atom its species, its position and its velocity. Masses are 1.
//
// Each step prints the energy, the virial and how many lists of pairs there were, on a line, then
// lines of a coordinate and the force along it.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "pjrt.hpp"

enum { S32 = 4, F32 = 11, F64 = 12 };  // of PJRT_Buffer_Type

// A potential on a device. What is put there stays, until the same array is put again.
class Potential {
 public:
  Potential(const pjrt::Client &client, const std::string &path)
      : path_(path), client_(client), program_(path), executable_(client, program_),
        call_(executable_) {
    for (size_t i = 0; i < program_.num_parameters(); i++) {
      parameters_.push_back(&program_.parameter(i));
      held_.emplace_back(client, nullptr);
    }
    for (size_t i = 0; i < program_.num_results(); i++) results_.push_back(&program_.result(i));
  }

  // Copies an array to the device, with zeros behind it, if the potential takes one of this name.
  template <typename T>
  void put(const std::string &name, const std::vector<T> &array) {
    size_t number = find(parameters_, name);
    if (number == parameters_.size()) return;
    auto &parameter = *parameters_[number];
    if (array.size() > size(parameter))
      throw pjrt::Error(path_ + " has room for " + std::to_string(size(parameter)) + " of the " +
                        std::to_string(array.size()) + " numbers in " + name +
                        "\n\nhint: export it with more room");
    bytes_.assign(parameter.nbytes, 0);
    void *to = bytes_.data();
    switch (parameter.type) {
      case S32: convert(array.data(), array.size(), static_cast<int32_t *>(to)); break;
      case F32: convert(array.data(), array.size(), static_cast<float *>(to)); break;
      case F64: convert(array.data(), array.size(), static_cast<double *>(to)); break;
      default: throw pjrt::Error(path_ + " takes " + name + " in a type that is not known here");
    }
    held_[number] = pjrt::Buffer(client_, executable_, number, to);
  }

  // Starts to compute, and does not wait.
  void run() {
    std::vector<PJRT_Buffer *> arguments;
    for (size_t i = 0; i < held_.size(); i++) {
      if (held_[i].get() == nullptr)
        throw pjrt::Error(path_ + " takes " + parameters_[i]->name + ", which is not known here");
      arguments.push_back(held_[i].get());
    }
    made_ = call_(client_, arguments, results_.size());
  }

  // Waits for a result, and copies the first of its numbers to the host.
  void get(const std::string &name, size_t count, double *to) {
    size_t number = find(results_, name);
    if (number == results_.size() || size(*results_[number]) < count)
      throw pjrt::Error(path_ + " does not give " + std::to_string(count) + " numbers as " + name);
    bytes_.resize(results_[number]->nbytes);
    made_[number].copy_to(bytes_.data(), bytes_.size());
    const void *from = bytes_.data();
    switch (results_[number]->type) {
      case F32: convert(static_cast<const float *>(from), count, to); break;
      case F64: convert(static_cast<const double *>(from), count, to); break;
      default: throw pjrt::Error(path_ + " gives " + name + " in a type that is not known here");
    }
  }

 private:
  using Values = std::vector<const pjrt_program_value *>;

  // JAX calls an argument `pairs`, and a result `result['energy']`.
  static size_t find(const Values &values, const std::string &name) {
    size_t i = 0;
    while (i < values.size() && values[i]->name != name &&
           values[i]->name != "result['" + name + "']")
      i++;
    return i;
  }

  static size_t size(const pjrt_program_value &value) {
    int64_t count = 1;
    for (size_t i = 0; i < value.num_dims; i++) count *= value.dims[i];
    return static_cast<size_t>(count);
  }

  template <typename From, typename To>
  static void convert(const From *from, size_t count, To *to) {
    for (size_t i = 0; i < count; i++) to[i] = static_cast<To>(from[i]);
  }

  std::string path_;
  const pjrt::Client &client_;
  pjrt::Program program_;
  pjrt::Executable executable_;
  pjrt::Call call_;
  Values parameters_, results_;
  std::vector<pjrt::Buffer> held_, made_;
  std::vector<char> bytes_;  // kept from call to call
};

struct Atoms {
  double box[3], time_step, cutoff, skin;
  std::vector<int> species;
  std::vector<double> positions, velocities;

  explicit Atoms(const char *path) {
    std::ifstream file(path);
    file >> box[0] >> box[1] >> box[2] >> time_step >> cutoff >> skin;
    if (!file) throw pjrt::Error(std::string(path) + " does not begin with six numbers");
    int kind;
    double x[3], v[3];
    while (file >> kind >> x[0] >> x[1] >> x[2] >> v[0] >> v[1] >> v[2]) {
      species.push_back(kind);
      positions.insert(positions.end(), x, x + 3);
      velocities.insert(velocities.end(), v, v + 3);
    }
  }

  // The square of the distance to the nearest image.
  double square(const double *a, const double *b) const {
    double sum = 0;
    for (int k = 0; k < 3; k++) {
      double apart = a[k] - b[k];
      apart -= box[k] * std::round(apart / box[k]);
      sum += apart * apart;
    }
    return sum;
  }

  std::vector<int> pairs() const {
    std::vector<int> found;
    double most = (cutoff + skin) * (cutoff + skin);
    for (size_t i = 0; i < species.size(); i++)
      for (size_t j = i + 1; j < species.size(); j++)
        if (square(&positions[3 * i], &positions[3 * j]) < most)
          found.insert(found.end(), {static_cast<int>(i), static_cast<int>(j)});
    return found;
  }
};

int main(int argc, char **argv) try {
  if (argc != 5) throw pjrt::Error("usage: potential PLUGIN POTENTIAL ATOMS STEPS");
  pjrt::Plugin plugin(argv[1]);
  pjrt::Client client(plugin.api());
  Potential potential(client, argv[2]);
  Atoms atoms(argv[3]);
  const double *box = atoms.box;
  potential.put("species", atoms.species);
  potential.put("box", std::vector<double>{box[0], 0, 0, 0, box[1], 0, 0, 0, box[2]});

  size_t count = atoms.positions.size(), num_lists = 0;
  double energy, virial[9];
  std::vector<double> forces(count), listed;
  for (long step = 0; step < std::atol(argv[4]); step++) {
    bool is_old = listed.empty();
    for (size_t i = 0; i < count && !is_old; i += 3)  // Two atoms may share the skin.
      is_old = 4 * atoms.square(&atoms.positions[i], &listed[i]) > atoms.skin * atoms.skin;
    if (is_old) {
      potential.put("pairs", atoms.pairs());
      listed = atoms.positions;
      num_lists++;
    }
    potential.put("positions", atoms.positions);
    potential.run();
    potential.get("energy", 1, &energy);
    potential.get("virial", 9, virial);
    potential.get("forces", count, forces.data());

    std::printf("%.17g", energy);
    for (double each : virial) std::printf(" %.17g", each);
    std::printf(" %zu\n", num_lists);
    for (size_t i = 0; i < count; i++) {
      std::printf("%.17g %.17g\n", atoms.positions[i], forces[i]);
      // Velocities are those between the steps, so the first step is half a one.
      atoms.velocities[i] += forces[i] * atoms.time_step / (step == 0 ? 2 : 1);
      atoms.positions[i] += atoms.velocities[i] * atoms.time_step;
    }
  }
  return 0;
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
