// The rendezvous store of one generation.
#include <agent.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>

namespace kintsugi::python {
namespace {

// Python keeps the agent for as long as the store (keep_alive below), but it may have left the run: then calls are
// refused.
class Store {
 public:
  Store(const PythonAgent& agent, uint64_t generation) : agent_(agent) {
    Checked([&](kintsugi_error** error) { return kintsugi_store_open(agent_.get(), generation, &store_, error); });
  }
  ~Store() { kintsugi_store_close(store_); }
  Store(const Store&) = delete;

  void Set(const std::string& key, nb::bytes value) {
    static_cast<void>(agent_.get());
    const std::string bytes(value.c_str(), value.size());
    Checked([&](kintsugi_error** error) {
      return kintsugi_store_set(store_, key.c_str(), bytes.data(), bytes.size(), error);
    });
  }
  nb::bytes Get(const std::string& key, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    const void* bytes = nullptr;
    size_t size = 0;
    Checked([&](kintsugi_error** error) {
      return kintsugi_store_get(store_, key.c_str(), timeout_ms, &bytes, &size, error);
    });
    return nb::bytes(bytes, size);
  }
  void Wait(const std::string& key, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    Checked([&](kintsugi_error** error) { return kintsugi_store_wait(store_, key.c_str(), timeout_ms, error); });
  }
  bool Check(const std::string& key, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    int32_t present = 0;
    Checked(
        [&](kintsugi_error** error) { return kintsugi_store_check(store_, key.c_str(), timeout_ms, &present, error); });
    return present != 0;
  }
  int64_t Add(const std::string& key, int64_t amount, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    int64_t value = 0;
    Checked([&](kintsugi_error** error) {
      return kintsugi_store_add(store_, key.c_str(), amount, timeout_ms, &value, error);
    });
    return value;
  }
  nb::bytes CompareSet(const std::string& key, nb::bytes expected, nb::bytes desired, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    const std::string was(expected.c_str(), expected.size()), becomes(desired.c_str(), desired.size());
    const void* bytes = nullptr;
    size_t size = 0;
    Checked([&](kintsugi_error** error) {
      return kintsugi_store_compare_set(store_, key.c_str(), was.data(), was.size(), becomes.data(), becomes.size(),
                                        timeout_ms, &bytes, &size, error);
    });
    return nb::bytes(bytes, size);
  }
  bool Delete(const std::string& key, int64_t timeout_ms) {
    static_cast<void>(agent_.get());
    int32_t was_there = 0;
    Checked([&](kintsugi_error** error) {
      return kintsugi_store_delete(store_, key.c_str(), timeout_ms, &was_there, error);
    });
    return was_there != 0;
  }

 private:
  const PythonAgent& agent_;
  kintsugi_store* store_ = nullptr;
};

}  // namespace

void BindStore(nb::module_& module, nb::class_<PythonAgent>* agent) {
  nb::class_<Store>(module, "Store")
      .def("set", &Store::Set, nb::arg("key"), nb::arg("value"))
      .def("get", &Store::Get, nb::arg("key"), nb::arg("timeout_ms"))
      .def("wait", &Store::Wait, nb::arg("key"), nb::arg("timeout_ms"))
      .def("check", &Store::Check, nb::arg("key"), nb::arg("timeout_ms"))
      .def("add", &Store::Add, nb::arg("key"), nb::arg("amount"), nb::arg("timeout_ms"))
      .def("compare_set", &Store::CompareSet, nb::arg("key"), nb::arg("expected"), nb::arg("desired"),
           nb::arg("timeout_ms"))
      .def("delete", &Store::Delete, nb::arg("key"), nb::arg("timeout_ms"));
  agent->def(
      "open_store",
      [](const PythonAgent& owner, uint64_t generation) { return std::make_unique<Store>(owner, generation); },
      nb::arg("generation"), nb::keep_alive<0, 1>());
}

}  // namespace kintsugi::python
