// Python's view of the outer groups. Every entry that may wait or touch a group lets go of Python's lock.
#include <ATen/ops/from_blob.h>
#include <ddp_layout.h>
#include <farewell.h>
#include <group.h>
#include <nccl_inner.h>
#include <rendezvous.h>
#include <sockets.h>
#include <tensors.h>
#include <torch/csrc/utils/pybind.h>
#include <torch_inner.h>

namespace py = pybind11;
using kintsugi::torch_door::AbortAll;
using kintsugi::torch_door::CollectiveMarker;
using kintsugi::torch_door::DdpLayout;
using kintsugi::torch_door::Farewell;
using kintsugi::torch_door::GlooInner;
using kintsugi::torch_door::GroupConnection;
using kintsugi::torch_door::NcclCollectives;
using kintsugi::torch_door::NcclFunctions;
using kintsugi::torch_door::NcclGeneration;
using kintsugi::torch_door::NcclInner;
using kintsugi::torch_door::OpenSockets;
using kintsugi::torch_door::OuterGroup;
using kintsugi::torch_door::Places;
using kintsugi::torch_door::Rendezvous;
using kintsugi::torch_door::StateValues;
using kintsugi::torch_door::TorchInner;

namespace {

// How the errors of an inner group's works call the group.
std::shared_ptr<const std::string> CalledIn(const std::string& name, int rank, int size) {
  return std::make_shared<const std::string>(std::string(kintsugi::torch_door::kFailureMark) + " '" + name +
                                             "', rank " + std::to_string(rank) + " of " + std::to_string(size) + ", ");
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  // Of `find`, which gives a function's address by its name: _core.nccl_function.
  py::class_<NcclFunctions, std::shared_ptr<NcclFunctions>>(module, "NcclFunctions")
      .def(py::init([](const py::function& find) {
             return std::const_pointer_cast<NcclFunctions>(NcclFunctions::Load(
                 [&](const char* name) { return reinterpret_cast<void*>(find(name).cast<uintptr_t>()); }));
           }),
           py::arg("find"))
      .def_readonly("version", &NcclFunctions::version)
      .def("unique_id", [](const NcclFunctions& nccl) {
        kintsugi::torch_door::NcclId id{};
        nccl.Check(nccl.get_unique_id(&id), "ncclGetUniqueId");
        return py::bytes(id.bytes, sizeof(id.bytes));
      });
  py::class_<NcclGeneration, std::shared_ptr<NcclGeneration>>(module, "NcclGeneration")
      .def(py::init([](const std::shared_ptr<NcclFunctions>& nccl) { return std::make_shared<NcclGeneration>(nccl); }),
           py::arg("nccl"))
      .def(
          "connect",
          [](NcclGeneration& generation, const std::vector<std::tuple<int, int, std::string>>& members) {
            std::vector<NcclGeneration::Member> asked;
            for (const auto& [ranks, rank, id] : members) {
              NcclGeneration::Member member{ranks, rank, {}};
              TORCH_CHECK(id.size() == sizeof(member.id.bytes), "an id of NCCL has ", sizeof(member.id.bytes),
                          " bytes, and not ", id.size());
              std::copy(id.begin(), id.end(), member.id.bytes);
              asked.push_back(member);
            }
            std::vector<uintptr_t> made;
            for (void* comm : generation.Connect(asked)) made.push_back(reinterpret_cast<uintptr_t>(comm));
            return made;
          },
          unlocked, py::arg("members"))
      .def("cut", &NcclGeneration::Cut, unlocked)
      .def(
          "free",
          [](NcclGeneration& generation, int64_t limit_ms) {
            return generation.Free(std::chrono::milliseconds(limit_ms));
          },
          unlocked, py::arg("limit_ms"))
      .def_property_readonly("is_void", &NcclGeneration::Void);
  py::class_<NcclCollectives, c10::intrusive_ptr<NcclCollectives>, c10d::Backend>(module, "NcclCollectives")
      .def(py::init([](int rank, int size, const std::shared_ptr<NcclGeneration>& generation, uintptr_t comm,
                       const std::optional<c10::Device>& device, const c10::intrusive_ptr<c10d::Store>& store,
                       const std::string& name, bool high_priority, bool ordered) {
             return c10::make_intrusive<NcclCollectives>(
                 rank, size, generation, reinterpret_cast<void*>(comm),
                 NcclCollectives::Place{device, high_priority, ordered, CalledIn(name, rank, size), store});
           }),
           py::arg("rank"), py::arg("size"), py::arg("generation"), py::arg("comm"), py::arg("device"),
           py::arg("store"), py::arg("name"), py::arg("high_priority") = false, py::arg("ordered") = false, unlocked)
      .def_property_readonly("is_connected", &NcclCollectives::is_connected)
      .def_property_readonly("device", &NcclCollectives::device);
  module.def("set_capturing", &kintsugi::torch_door::SetCapturing, py::arg("capturing"));
  // Which communicators a stop ends; none: those of before are nobody's any more.
  module.def("cut_at_stop", &kintsugi::torch_door::CutAtStop, py::arg("generation"));
  // The stream of a device on which what the caller enqueues now runs, as the device's library knows it.
  module.def("current_stream", [](const c10::Device& device) {
    return reinterpret_cast<uintptr_t>(c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle());
  });
  // Until all that was enqueued there is done; false: not within the limit. The device's error is thrown.
  module.def("await_device", &kintsugi::torch_door::AwaitDevice, unlocked, py::arg("device"), py::arg("limit_ms"));
  py::class_<OuterGroup, c10::intrusive_ptr<OuterGroup>, c10d::Backend>(module, "OuterGroup")
      .def(py::init([](int rank, int size, const std::string& name, int64_t timeout_ms) {
             return OuterGroup::Make(rank, size, name, std::chrono::milliseconds(timeout_ms));
           }),
           py::arg("rank"), py::arg("size"), py::arg("name"), py::arg("timeout_ms"), unlocked)
      .def(
          "connect",
          [](OuterGroup& group, const c10::intrusive_ptr<c10d::Backend>& inner,
             const std::vector<std::pair<int, uint64_t>>& sockets, uint64_t generation,
             const c10::intrusive_ptr<c10d::Backend>& device) {
            std::vector<GroupConnection> connections;
            for (const auto& [descriptor, inode] : sockets) connections.push_back({descriptor, inode});
            std::shared_ptr<kintsugi::torch_door::InnerGroup> on_device;
            if (auto* const nccl = dynamic_cast<NcclCollectives*>(device.get()))
              on_device =
                  std::make_shared<NcclInner>(c10::intrusive_ptr<NcclCollectives>::unsafe_reclaim_from_nonowning(nccl));
            else if (device)
              on_device =
                  std::make_shared<TorchInner>(device, CalledIn(group.name(), group.getRank(), group.getSize()));
            group.Connect(std::make_shared<GlooInner>(inner, std::move(connections)), std::move(on_device), generation);
          },
          unlocked, py::arg("inner"), py::arg("connections"), py::arg("generation"), py::arg("device") = nullptr)
      .def("mark_as", &OuterGroup::MarkAs, py::arg("place"), py::arg("ranks"))
      .def("answer_alone", &OuterGroup::AnswerAlone, unlocked)
      .def("close", &OuterGroup::Close, unlocked, py::arg("why"))
      .def(
          "drain", [](OuterGroup& group, int64_t limit_ms) { return group.Drain(std::chrono::milliseconds(limit_ms)); },
          unlocked, py::arg("limit_ms"))
      .def_property_readonly("state", &OuterGroup::state)
      .def_property_readonly("calls", &OuterGroup::calls)
      .def_property_readonly("group_name", &OuterGroup::name);
  module.def("renumber", &kintsugi::torch_door::Renumber, py::arg("group"), py::arg("outer"), py::arg("rank"),
             py::arg("size"));
  py::class_<Farewell>(module, "Farewell")
      .def(py::init([](int64_t after_ms, const std::string& why) {
             return std::make_unique<Farewell>(std::chrono::milliseconds(after_ms), why);
           }),
           py::arg("after_ms"), py::arg("why"))
      .def("cancel", &Farewell::Cancel, unlocked);
  py::class_<Places>(module, "Places")
      .def(py::init<>())
      .def("add", &Places::Add, py::arg("key"), py::arg("tensor"), py::arg("cut"), py::arg("address"))
      .def("watch", &Places::Watch, py::arg("parameters"))
      .def("know", &Places::Know, py::arg("parameter"))
      .def("first_moved", &Places::FirstMoved)
      .def("first_unknown", &Places::FirstUnknown);
  py::class_<StateValues>(module, "StateValues")
      .def(py::init<>())
      .def("learn", &StateValues::Learn, py::arg("states"))
      .def("same", &StateValues::Same, py::arg("states"));
  module.def("versions", &kintsugi::torch_door::VersionsOf, py::arg("tensors"));
  using Socket = OpenSockets::Socket;
  py::class_<Socket>(module, "Socket")
      .def_readonly("descriptor", &Socket::descriptor)
      .def_readonly("inode", &Socket::inode)
      .def_readonly("own_port", &Socket::own_port)
      .def_readonly("peer_port", &Socket::peer_port)
      .def_readonly("own", &Socket::own)
      .def_readonly("peer", &Socket::peer);
  py::class_<OpenSockets>(module, "OpenSockets")
      .def(py::init<>(), unlocked)
      .def("opened", &OpenSockets::Opened, unlocked);
  py::class_<Rendezvous>(module, "Rendezvous")
      .def(py::init([](int64_t limit_ms) { return std::make_unique<Rendezvous>(std::chrono::milliseconds(limit_ms)); }),
           py::arg("limit_ms"))
      .def("add", &Rendezvous::Add, py::arg("place"), py::arg("make"), py::arg("beyond"))
      .def("offered",
           [](Rendezvous& rendezvous) {
             std::string offered;
             {
               const py::gil_scoped_release unlocked;
               offered = rendezvous.Offered();
             }
             return py::bytes(offered);
           })
      .def(
          "tell", [](Rendezvous& rendezvous, const py::bytes& offered) { rendezvous.Tell(offered); },
          py::arg("offered"))
      .def("finish", &Rendezvous::Finish, unlocked, py::arg("index"));
  py::class_<DdpLayout>(module, "DdpLayout")
      .def(py::init<>())
      .def("__eq__", [](const DdpLayout& one, const DdpLayout& other) { return one == other; })
      .def_readwrite("buckets", &DdpLayout::buckets)
      .def_readwrite("is_rebuilt", &DdpLayout::is_rebuilt)
      .def_readwrite("ready", &DdpLayout::ready)
      .def_readwrite("passes", &DdpLayout::passes)
      .def_readwrite("hooked", &DdpLayout::hooked)
      .def_readwrite("unused", &DdpLayout::unused)
      .def_readwrite("used", &DdpLayout::used)
      .def_readwrite("is_used_known", &DdpLayout::is_used_known);
  module.def(
      "layout_of",
      [](const std::shared_ptr<c10d::Reducer>& reducer) { return kintsugi::torch_door::LayoutOf(*reducer); }, unlocked,
      py::arg("reducer"));
  module.def(
      "lay_out",
      [](const std::shared_ptr<c10d::Reducer>& reducer, const DdpLayout& layout) { LayOut(*reducer, layout); },
      unlocked, py::arg("reducer"), py::arg("layout"));
  module.def("destroy_drained", &kintsugi::torch_door::DestroyDrained, unlocked);
  module.def("pack", &kintsugi::torch_door::Pack, py::arg("tensors"));
  module.def("holds", &kintsugi::torch_door::Holds, py::arg("tensor"), py::arg("packed"), py::arg("at"),
             py::arg("begin"), py::arg("end"));
  module.def("unpack", &kintsugi::torch_door::Unpack, py::arg("tensors"), py::arg("packed"));
  // The storage of a tensor, and of all that share it, lies in memory that stays in place for good, and holds what is there.
  module.def("place", [](const at::Tensor& tensor, uintptr_t address) {
    const c10::Storage& storage = tensor.storage();
    storage.set_data_ptr_noswap(at::DataPtr(reinterpret_cast<void*>(address), storage.device()));
  });
  // The same, where it lies: that memory is never given back.
  module.def("keep_in_place", [](const at::Tensor& tensor) {
    static auto& kept = *new std::vector<at::DataPtr>;
    const c10::Storage& storage = tensor.storage();
    kept.push_back(storage.set_data_ptr(at::DataPtr(storage.mutable_data(), storage.device())));
  });
  // A tensor's storage, and all that share it, into device memory that stays in place for good; behind what the current stream does.
  module.def("move_to", [](const at::Tensor& tensor, uintptr_t address) {
    const c10::Storage& storage = tensor.storage();
    const auto bytes = [&](void* at) {
      return at::from_blob(
          at, {static_cast<int64_t>(storage.nbytes())}, [](void*) {},
          at::TensorOptions().dtype(at::kByte).device(storage.device()), storage.device());
    };
    const at::NoGradGuard no_grad;
    bytes(reinterpret_cast<void*>(address)).copy_(bytes(storage.mutable_data()));
    storage.set_data_ptr_noswap(at::DataPtr(reinterpret_cast<void*>(address), storage.device()));
  });
  // All bytes of a tensor's storage where it lies now, whatever is placed elsewhere later. Memory that stays in place for good.
  module.def("bytes_of", [](const at::Tensor& tensor) {
    const c10::Storage& storage = tensor.storage();
    return at::from_blob(
        storage.mutable_data(), {static_cast<int64_t>(storage.nbytes())}, [](void*) {},
        at::TensorOptions().dtype(at::kByte).device(storage.device()), storage.device());
  });
  // Collectives of all outer groups so far.
  module.def("calls", &kintsugi::torch_door::Calls);
  // A group that collects calls to do them at once; "": none does.
  module.def("collecting", &kintsugi::torch_door::Collecting);
  module.def("sum_collectives", &kintsugi::torch_door::SumCollectives, py::arg("yes"));
  // By group, of what was given to its collectives since this was asked last.
  module.def("sums_of_collectives", &kintsugi::torch_door::SumsOfCollectives);
  // (address of kintsugi_begin_collective, address of the agent); 0: nobody is told any more.
  module.def(
      "tell_collectives",
      [](uintptr_t marker, uintptr_t agent) {
        kintsugi::torch_door::TellCollectives(reinterpret_cast<CollectiveMarker>(marker),
                                              reinterpret_cast<void*>(agent));
      },
      py::arg("marker"), py::arg("agent"));
  // The address of what collectives are marked by; 0: nothing.
  module.def(
      "mark_by",
      [](uintptr_t calls) {
        kintsugi::torch_door::MarkBy(reinterpret_cast<const kintsugi::torch_door::MarkCalls*>(calls));
      },
      py::arg("calls"));
  // The address of what kintsugi_on_stop calls.
  module.def("stop_function", [] { return reinterpret_cast<uintptr_t>(&AbortAll); });
  module.attr("FAILURE_MARK") = kintsugi::torch_door::kFailureMark;
}
