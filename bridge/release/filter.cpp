// A C++ program as ITK's are: a filter with Update(), exceptions, an observer
// that aborts, and threads, over the library that it loads by the path on its
// command line. check.py runs it on every platform; the sum of the field's bits
// is the same on all.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "morphseek.h"

#ifdef _WIN32
#include <windows.h>
static void *symbol(const char *path, const char *name) {
  static HMODULE library = LoadLibraryA(path);
  return library ? reinterpret_cast<void *>(GetProcAddress(library, name)) : nullptr;
}
#else
#include <dlfcn.h>
static void *symbol(const char *path, const char *name) {
  static void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return library ? dlsym(library, name) : nullptr;
}
#endif

namespace {

struct Library {
  decltype(&ms_engine_create) engine_create;
  decltype(&ms_engine_destroy) engine_destroy;
  decltype(&ms_options_init) options_init;
  decltype(&ms_register) register_pair;
  decltype(&ms_result_field) result_field;
  decltype(&ms_result_destroy) result_destroy;
  decltype(&ms_last_error) last_error;
} ms;

template <typename Function> void find(const char *path, const char *name, Function &function) {
  function = reinterpret_cast<Function>(symbol(path, name));
  if (!function) throw std::runtime_error(std::string("there is no ") + name + " in " + path);
}

class Failure : public std::runtime_error {
public:
  explicit Failure(ms_status status) : std::runtime_error(ms.last_error()), status(status) {}
  const ms_status status;
};

// Multiplication, addition and division alone, so that every processor draws
// the same bits.
class Image {
public:
  Image(int n, double shift) : side_(n), voxels_(static_cast<size_t>(n) * n * n) {
    float *v = voxels_.data();
    for (int k = 0; k < n; k++)
      for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) {
          const double x = i - n / 2 - shift, y = j - n / 2, z = k - n / 2;
          *v++ = static_cast<float>(100 / (1 + (x * x) / 40 + (y * y) / 25 + (z * z) / 60) +
                                    60 / (1 + ((x - 4) * (x - 4) + (y + 3) * (y + 3) + (z - 2) * (z - 2)) / 4));
        }
  }
  void fill(float value) { voxels_.assign(voxels_.size(), value); }
  size_t size() const { return voxels_.size(); }
  ms_image view() const {
    const int64_t n = side_;
    return {sizeof(ms_image), {n, n, n}, {1.5, 1.5, 1.5}, {-5, 0, 5}, {1, 0, 0, 0, 1, 0, 0, 0, 1}, voxels_.data()};
  }

private:
  int side_;
  std::vector<float> voxels_;
};

class Filter {
public:
  using Observer = std::function<void(const std::string &stage, double fraction)>;
  Filter() { check(ms.engine_create(nullptr, &engine_)); }
  ~Filter() { ms.engine_destroy(engine_); }
  Filter(const Filter &) = delete;
  Filter &operator=(const Filter &) = delete;

  void SetFixedImage(std::shared_ptr<const Image> image) { fixed_ = std::move(image); }
  void SetMovingImage(std::shared_ptr<const Image> image) { moving_ = std::move(image); }
  void AddObserver(Observer observer) { observer_ = std::move(observer); }
  const std::vector<float> &GetOutput() const { return field_; }

  void Update() {
    ms_options options;
    ms.options_init(&options, sizeof options);
    options.model = "none";
    options.initial = "rigid";
    options.threads = 2;
    const ms_image fixed = fixed_->view(), moving = moving_->view();
    ms_result result = 0;
    thrown_ = nullptr;
    const ms_status status = ms.register_pair(engine_, &fixed, &moving, &options, &Filter::progress, this, &result);
    if (thrown_) std::rethrow_exception(thrown_); // by the observer; it did not go through
                                                  // the library's frames
    check(status);
    field_.resize(3 * fixed_->size());
    const ms_status copied = ms.result_field(result, field_.data(), field_.size());
    ms.result_destroy(result);
    check(copied);
  }

private:
  static void check(ms_status status) {
    if (status != MS_OK) throw Failure(status);
  }
  static int progress(const ms_progress *progress, void *user) {
    Filter *self = static_cast<Filter *>(user);
    try {
      if (self->observer_) self->observer_(progress->stage, progress->fraction);
      return 0;
    } catch (...) {
      self->thrown_ = std::current_exception();
      return 1;
    }
  }

  ms_engine engine_ = 0;
  std::shared_ptr<const Image> fixed_, moving_;
  Observer observer_;
  std::exception_ptr thrown_;
  std::vector<float> field_;
};

std::vector<float> registered(double shift) {
  Filter filter;
  filter.SetFixedImage(std::make_shared<Image>(24, 0));
  filter.SetMovingImage(std::make_shared<Image>(24, shift));
  filter.Update();
  return filter.GetOutput();
}

uint64_t sum(const std::vector<float> &field) {
  uint64_t hash = 14695981039346656037ull; // FNV-1a
  for (float value : field) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    hash = (hash ^ bits) * 1099511628211ull;
  }
  return hash;
}

void require(bool holds, const char *what) {
  if (!holds) throw std::runtime_error(what);
}

void run(const char *path) {
  find(path, "ms_engine_create", ms.engine_create);
  find(path, "ms_engine_destroy", ms.engine_destroy);
  find(path, "ms_options_init", ms.options_init);
  find(path, "ms_register", ms.register_pair);
  find(path, "ms_result_field", ms.result_field);
  find(path, "ms_result_destroy", ms.result_destroy);
  find(path, "ms_last_error", ms.last_error);

  // two threads at once, each with a filter of its own
  std::vector<float> alone = registered(2), beside;
  std::thread other([&] { beside = registered(2); });
  const std::vector<float> third = registered(3);
  other.join();
  require(alone == beside, "threads change the field");
  require(alone != third, "another shift gives the same field");

  Filter filter;
  filter.SetFixedImage(std::make_shared<Image>(24, 0));
  auto flat = std::make_shared<Image>(24, 0);
  flat->fill(7);
  filter.SetMovingImage(flat);
  bool refused = false;
  try {
    filter.Update();
  } catch (const Failure &failure) {
    refused = failure.status == MS_ERR_CONSTANT_VOLUME && std::strlen(failure.what()) > 10;
  }
  require(refused, "an image of one value is not refused");

  filter.SetMovingImage(std::make_shared<Image>(24, 2));
  filter.AddObserver([](const std::string &stage, double) {
    if (stage == "refine") throw std::out_of_range("enough");
  });
  bool aborted = false;
  try {
    filter.Update();
  } catch (const std::out_of_range &) { aborted = true; }
  require(aborted, "an observer's exception does not come out");
  filter.AddObserver(nullptr);
  filter.Update();
  require(filter.GetOutput() == alone, "after an abort the field is another");
  std::printf("field %016llx\n", static_cast<unsigned long long>(sum(alone)));
}

} // namespace

int main(int argc, char **argv) {
  try {
    if (argc != 2) throw std::runtime_error("usage: filter LIBRARY");
    run(argv[1]);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
