#include <rendezvous.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace py = pybind11;

namespace kintsugi::torch_door {
namespace {

std::string NameOf(const std::string& place, const std::string& key) { return place + '\n' + key; }

void Append(std::string* to, const void* bytes, size_t size) {
  const auto length = static_cast<uint32_t>(size);
  to->append(reinterpret_cast<const char*>(&length), sizeof length);
  to->append(static_cast<const char*>(bytes), size);
}

std::string_view Take(std::string_view* from) {
  uint32_t length = 0;
  if (from->size() < sizeof length) throw std::runtime_error("what another rank's groups say is cut short");
  std::memcpy(&length, from->data(), sizeof length);
  from->remove_prefix(sizeof length);
  if (from->size() < length) throw std::runtime_error("what another rank's groups say is cut short");
  const std::string_view taken = from->substr(0, length);
  from->remove_prefix(length);
  return taken;
}

}  // namespace

// A group's view of it, and of the store behind it.
class Rendezvous::Store final : public c10d::Store {
 public:
  Store(std::shared_ptr<Told> told, Group* group, c10::intrusive_ptr<c10d::Store> beyond,
        std::chrono::milliseconds limit)
      : c10d::Store(limit), told_(std::move(told)), group_(group), beyond_(std::move(beyond)), limit_(limit) {}

  void set(const std::string& key, const Bytes& value) override {
    {
      std::lock_guard lock(told_->mutex);
      if (!told_->offered) {
        told_->said[NameOf(group_->place, key)] = value;
        return;
      }
    }
    beyond_->set(key, value);
  }
  Bytes get(const std::string& key) override {
    auto found = Find(key);
    return found ? std::move(*found) : beyond_->get(key);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, limit_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    const auto missing = Missing(keys);
    if (!missing.empty()) beyond_->wait(missing, timeout);
  }
  bool check(const std::vector<std::string>& keys) override {
    const auto missing = Missing(keys);
    return missing.empty() || beyond_->check(missing);
  }
  int64_t add(const std::string& key, int64_t value) override { return beyond_->add(key, value); }
  bool deleteKey(const std::string& key) override { return beyond_->deleteKey(key); }
  int64_t getNumKeys() override { return beyond_->getNumKeys(); }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return beyond_->compareSet(key, expected, desired);
  }
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<Store>(told_, group_, beyond_, limit_);
  }

 private:
  // What a member said; nothing: nobody did. The first question waits until all has been told and it is the group's turn.
  std::optional<Bytes> Find(const std::string& key) {
    std::unique_lock lock(told_->mutex);
    if (!group_->asks) {
      group_->asks = true;
      told_->asked.notify_all();
    }
    group_->changed.wait_for(lock, limit_, [&] { return group_->may_go_on || told_->failed; });
    if (!group_->may_go_on)
      throw std::runtime_error("the groups of this rank were given up before all of them were connected");
    const auto found = told_->said.find(NameOf(group_->place, key));
    return found == told_->said.end() ? std::nullopt : std::optional(found->second);
  }
  std::vector<std::string> Missing(const std::vector<std::string>& keys) {
    std::vector<std::string> missing;
    for (const std::string& key : keys)
      if (!Find(key)) missing.push_back(key);
    return missing;
  }

  const std::shared_ptr<Told> told_;
  Group* const group_;  // told_'s
  const c10::intrusive_ptr<c10d::Store> beyond_;
  const std::chrono::milliseconds limit_;
};

Rendezvous::~Rendezvous() {
  std::optional<py::gil_scoped_release> unlocked;
  if (PyGILState_Check()) unlocked.emplace();  // which the threads need to end
  {
    std::lock_guard lock(told_->mutex);
    told_->failed = true;
    for (Group& group : told_->groups) group.changed.notify_all();
  }
  for (Group& group : told_->groups)
    if (group.thread.joinable()) group.thread.join();
}

void Rendezvous::Add(std::string place, py::object make, c10::intrusive_ptr<c10d::Store> beyond) {
  Group& group = told_->groups.emplace_back();
  group.place = std::move(place);
  group.make = std::move(make);
  c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<Store>(told_, &group, std::move(beyond), limit_);
  group.thread = std::thread([this, &group, store = std::move(store)]() mutable {
    Make(&group, store);
    const py::gil_scoped_acquire locked;
    store.reset();  // what is beyond may be Python's
  });
}

void Rendezvous::Make(Group* group, const c10::intrusive_ptr<c10d::Store>& store) {
  {
    const py::gil_scoped_acquire locked;
    try {
      group->made = group->make(store).cast<c10::intrusive_ptr<c10d::Backend>>();
    } catch (const std::exception& error) {  // Python's exceptions are pybind11's here
      group->error = error.what();
    }
    group->make = py::object();
  }
  std::lock_guard lock(told_->mutex);
  group->asks = true;
  told_->asked.notify_all();
}

std::string Rendezvous::Offered() {
  std::unique_lock lock(told_->mutex);
  const bool all_ask = told_->asked.wait_for(lock, limit_, [&] {
    return std::all_of(told_->groups.begin(), told_->groups.end(), [](const Group& group) { return group.asks; });
  });
  if (!all_ask) throw std::runtime_error("the groups of this rank did not say where they listen in time");
  told_->offered = true;
  std::string message;
  for (const auto& [name, value] : told_->said) {
    Append(&message, name.data(), name.size());
    Append(&message, value.data(), value.size());
  }
  return message;
}

void Rendezvous::Tell(const std::string& offered) {
  std::lock_guard lock(told_->mutex);
  for (std::string_view rest = offered; !rest.empty();) {
    const std::string name(Take(&rest));
    const std::string_view value = Take(&rest);
    told_->said.emplace(name, Bytes(value.begin(), value.end()));
  }
}

c10::intrusive_ptr<c10d::Backend> Rendezvous::Finish(size_t index) {
  Group& group = told_->groups.at(index);
  {
    std::lock_guard lock(told_->mutex);
    group.may_go_on = true;
    group.changed.notify_all();
  }
  group.thread.join();
  if (!group.made) throw std::runtime_error(group.error);
  return std::move(group.made);
}

}  // namespace kintsugi::torch_door
