#include "runtime/agent/tensor_addresses.h"

#include <memory>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/device/cuda_fresh_memory.h"

namespace kintsugi {
namespace {

// Fresh memory where the tensor lies; the driver is loaded when the first tensor on a device needs it.
class FreshByKind final : public device::FreshMemory {
 public:
  Status Replace(const Memory& memory, const AddressRange& range) override {
    if (memory.kind != MemoryKind::kDevice) return host_->Replace(memory, range);
    if (!device_) {
      KINTSUGI_ASSIGN_OR_RETURN(device_, device::CudaFreshMemory(memory.device));
    }
    return device_->Replace(memory, range);
  }

 private:
  const std::unique_ptr<device::FreshMemory> host_ = device::HostFreshMemory();
  std::unique_ptr<device::FreshMemory> device_;
};

}  // namespace

bool TensorAddresses::moving() const {
  const MutexLock lock(mutex_);
  return relocation_.has_value();
}

void TensorAddresses::Begin() {
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(!relocation_, "tensors are moving already");
  relocation_.emplace(registered_.registry());
}

Status TensorAddresses::Move(const ShardedTensor& tensor) {
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(relocation_, "a tensor moves before Begin");
  return relocation_->Move(tensor);
}

Status TensorAddresses::Remove(const std::string& key) {
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(relocation_, "a tensor goes before Begin");
  return relocation_->Remove(key);
}

void TensorAddresses::Swap(StateRegistry* other) {
  const MutexLock lock(mutex_);
  KINTSUGI_CHECK(!relocation_ && other->sealed(), "state is replaced while tensors move, or by one that is not whole");
  std::swap(registered_.registry(), *other);
}

bool TensorAddresses::Settle() {
  const MutexLock lock(mutex_);
  if (!relocation_) return false;
  registered_.registry() = relocation_->Moved();
  relocation_.reset();
  KINTSUGI_CHECK(registered_.registry().sealed(), "what is registered is settled before the guard begins");
  return true;
}

bool TensorAddresses::Holds(const std::string& key) const {
  const MutexLock lock(mutex_);
  return registered_.registry().tensors().count(key) > 0;
}

Result<std::vector<std::string>> TensorAddresses::Renew(const std::vector<AddressRange>& damaged) {
  const MutexLock lock(mutex_);
  const auto& tensors = registered_.registry().tensors();
  const device::Damage damage = device::FindDamage(tensors, damaged);
  if (relocation_) return Status(StatusCode::kUnavailable, "tensors were about to move");
  if (!damage.IsPatchable())
    return Status(StatusCode::kUnavailable, "the damage is not within whole pages of registered tensors");
  FreshByKind fresh;
  KINTSUGI_RETURN_IF_ERROR(device::ReplaceDamaged(tensors, damage, fresh));
  std::vector<std::string> keys;
  for (const device::TensorDamage& tensor : damage.tensors) keys.push_back(tensor.key);
  return keys;
}

}  // namespace kintsugi
