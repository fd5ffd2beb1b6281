// Memory that outlives a killed process and is filled before anything touches it.
//
// Bytes go in through the memory file: the kernel copies them into fresh pages, where a copy into the mapping costs a fault for
// each page, and the page's zeroes first. Pages are mapped afterwards, many at once.
// Ownership: mapped for as long as the process lives, since arrays lie in it for as long.
#include <agent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace kintsugi::python {
namespace {

class StateMemory {
 public:
  StateMemory(const PythonAgent& agent, uint64_t size_bytes) : size_bytes_(size_bytes) {
    file_ = memfd_create("kintsugi-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file_ < 0) Fail("memfd_create");
    if (ftruncate(file_, static_cast<off_t>(size_bytes)) != 0 ||
        fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
      Fail("ftruncate");
    void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (data == MAP_FAILED) Fail("mmap");
    address_ = reinterpret_cast<uintptr_t>(data);
    try {
      Checked(
          [&](kintsugi_error** error) { return kintsugi_share_memory(agent.get(), data, size_bytes, file_, error); });
    } catch (...) {
      munmap(data, size_bytes);
      CloseFile();
      throw;
    }
  }
  ~StateMemory() { CloseFile(); }
  StateMemory(const StateMemory&) = delete;

  void Fill(uint64_t offset, uintptr_t source, uint64_t size_bytes) {
    if (offset > size_bytes_ || size_bytes > size_bytes_ - offset)
      throw DoorError(KINTSUGI_INVALID_ARGUMENT, std::to_string(size_bytes) + " bytes at " + std::to_string(offset) +
                                                     " do not fit into " + std::to_string(size_bytes_));
    if (file_ < 0) throw DoorError(KINTSUGI_FAILED_PRECONDITION, "this memory was filled and finished");
    const nb::gil_scoped_release unlocked;
    for (uint64_t done = 0; done < size_bytes;) {
      const ssize_t written = pwrite(file_, reinterpret_cast<const void*>(source + done), size_bytes - done,
                                     static_cast<off_t>(offset + done));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) Fail("pwrite");
      done += static_cast<uint64_t>(written);
    }
  }

  // With a contiguous buffer of Python's.
  void FillWith(uint64_t offset, const nb::object& source) {
    Py_buffer buffer{};
    if (PyObject_GetBuffer(source.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
    const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> held(&buffer, PyBuffer_Release);
    Fill(offset, reinterpret_cast<uintptr_t>(buffer.buf), static_cast<uint64_t>(buffer.len));
  }

  // A kernel that knows nothing of it (before 5.14) refuses, and pages are mapped as they are touched.
  void Finish() {
    const nb::gil_scoped_release unlocked;
    static_cast<void>(madvise(reinterpret_cast<void*>(address_), size_bytes_, MADV_POPULATE_READ));
    CloseFile();
  }

  // Nobody needs its bytes any more. Its addresses stay taken, since what knows them still does.
  void Discard() { static_cast<void>(madvise(reinterpret_cast<void*>(address_), size_bytes_, MADV_REMOVE)); }

  uintptr_t address() const { return address_; }
  nb::object View() const {
    return nb::steal(
        PyMemoryView_FromMemory(reinterpret_cast<char*>(address_), static_cast<Py_ssize_t>(size_bytes_), PyBUF_WRITE));
  }

 private:
  // kResourceExhausted: what is missing is memory.
  [[noreturn]] void Fail(const char* call) {
    const std::string why = std::strerror(errno);
    CloseFile();
    throw DoorError(KINTSUGI_RESOURCE_EXHAUSTED,
                    std::string(call) + " of " + std::to_string(size_bytes_) + " bytes of shared state memory: " + why);
  }
  void CloseFile() {
    if (file_ >= 0) close(file_);
    file_ = -1;
  }

  const uint64_t size_bytes_;
  int file_ = -1;
  uintptr_t address_ = 0;
};

}  // namespace

void BindStateMemory(nb::module_& module) {
  nb::class_<StateMemory>(module, "StateMemory")
      .def(nb::init<const PythonAgent&, uint64_t>(), nb::arg("agent"), nb::arg("size_bytes"))
      .def("fill", &StateMemory::Fill, nb::arg("offset"), nb::arg("source"), nb::arg("size_bytes"))
      .def("fill_with", &StateMemory::FillWith, nb::arg("offset"), nb::arg("source"))
      .def("finish", &StateMemory::Finish)
      .def("discard", &StateMemory::Discard)
      .def("view", &StateMemory::View)
      .def_prop_ro("address", &StateMemory::address);
}

}  // namespace kintsugi::python
