// What is to be repaired: memory, tensors, layouts, objects.
#include "integrations/c/handle.h"

using namespace kintsugi;

namespace {

Shape ShapeOf(const int64_t* numbers, int32_t count) { return Shape(numbers, numbers + count); }

Status Convert(const kintsugi_tensor& given, const Agent& agent, ShardedTensor* tensor) {
  if (!given.key || !given.dtype) return {StatusCode::kInvalidArgument, "kintsugi_tensor: key and dtype are needed"};
  tensor->key = given.key;
  const std::optional<DType> dtype = DTypeFromName(given.dtype);
  if (!dtype)
    return {StatusCode::kInvalidArgument,
            "tensor '" + tensor->key + "': '" + given.dtype + "' is no element type that can be repaired"};
  tensor->dtype = *dtype;
  if (given.dimensions < 0 || given.dimensions > 64 || (given.dimensions > 0 && !given.global_shape))
    return {StatusCode::kInvalidArgument,
            "tensor '" + tensor->key + "': " + std::to_string(given.dimensions) + " dimensions without a shape"};
  tensor->global_shape = ShapeOf(given.global_shape, given.dimensions);
  tensor->local_shape = given.local_shape ? ShapeOf(given.local_shape, given.dimensions) : tensor->global_shape;
  tensor->global_offset = given.global_offset ? ShapeOf(given.global_offset, given.dimensions)
                                              : Shape(static_cast<size_t>(given.dimensions), 0);
  if (given.flat_start != 0 || given.flat_stop != 0) tensor->flattened_range = {given.flat_start, given.flat_stop};
  tensor->layout = given.layout;
  tensor->memory.data = given.data;
  tensor->memory.size_bytes = given.size_bytes;
  if (given.device > 0) {
    tensor->memory.kind = MemoryKind::kDevice;
    tensor->memory.device = given.device - 1;
  } else {
    agent.DescribeMemory(&tensor->memory);
  }
  return Status::Ok();
}

void Capture(void* context, std::vector<uint8_t>* out) {
  const auto& object = *static_cast<kintsugi_agent::Object*>(context);
  out->insert(out->end(), object.bytes.begin(), object.bytes.end());
}

Status Restore(void* context, const uint8_t* bytes, uint64_t size_bytes) {
  static_cast<kintsugi_agent::Object*>(context)->bytes.assign(bytes, bytes + size_bytes);
  return Status::Ok();
}

Result<kintsugi_agent::Object*> Find(kintsugi_agent* agent, const char* key) {
  const auto found = agent->objects.find(key ? key : "");
  if (found == agent->objects.end())
    return Status(StatusCode::kNotFound, "no mirrored object '" + std::string(key ? key : "") + "' is registered");
  return found->second.get();
}

}  // namespace

kintsugi_code kintsugi_allocate(kintsugi_agent* agent, uint64_t size_bytes, void** data, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               KINTSUGI_ASSIGN_OR_RETURN(const Memory memory, agent->agent->AllocateState(size_bytes));
                               *data = memory.data;
                               return Status::Ok();
                             }),
                   error);
}

kintsugi_code kintsugi_register_tensor(kintsugi_agent* agent, const kintsugi_tensor* tensor, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               kintsugi_tensor given;
                               KINTSUGI_RETURN_IF_ERROR(c::TakeStruct(tensor, "kintsugi_tensor", &given));
                               ShardedTensor sharded;
                               KINTSUGI_RETURN_IF_ERROR(Convert(given, *agent->agent, &sharded));
                               return agent->agent->RegisterTensor(sharded);
                             }),
                   error);
}

kintsugi_code kintsugi_register_alias(kintsugi_agent* agent, const char* alias, const char* key,
                                      kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               if (!alias || !key) return {StatusCode::kInvalidArgument, "an alias needs two names"};
                               return agent->agent->RegisterAlias(alias, key);
                             }),
                   error);
}

kintsugi_code kintsugi_set_layout(kintsugi_agent* agent, int32_t layout, const int32_t* ranks, size_t rank_count,
                                  int32_t replicas, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&] {
                               std::vector<Rank> group;
                               for (size_t i = 0; i < rank_count; ++i) group.push_back(Rank(ranks[i]));
                               return agent->agent->SetReplicaLayout(layout, group, replicas);
                             }),
                   error);
}

kintsugi_code kintsugi_register_object(kintsugi_agent* agent, const char* key, kintsugi_object_kind kind,
                                       kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               if (!key) return {StatusCode::kInvalidArgument, "an object without a key"};
                               ShardedObject object;
                               object.key = key;
                               object.kind = static_cast<ObjectKind>(kind);
                               if (kind != KINTSUGI_MIRRORED) return agent->agent->RegisterObject(object);
                               auto held = std::make_unique<kintsugi_agent::Object>();
                               held->key = key;
                               object.capture = Capture;
                               object.restore = Restore;
                               object.context = held.get();
                               KINTSUGI_RETURN_IF_ERROR(agent->agent->RegisterObject(object));
                               agent->objects.emplace(key, std::move(held));
                               return Status::Ok();
                             }),
                   error);
}

kintsugi_code kintsugi_put_object(kintsugi_agent* agent, const char* key, uint64_t step, const void* bytes,
                                  size_t size_bytes, kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               KINTSUGI_ASSIGN_OR_RETURN(kintsugi_agent::Object* const object, Find(agent, key));
                               const auto* begin = static_cast<const uint8_t*>(bytes);
                               object->bytes.assign(begin, begin + size_bytes);
                               object->step = step;
                               object->put = true;
                               return Status::Ok();
                             }),
                   error);
}

kintsugi_code kintsugi_get_object(kintsugi_agent* agent, const char* key, const void** bytes, size_t* size_bytes,
                                  kintsugi_error** error) {
  return c::Answer(c::AtEdge(agent,
                             [&]() -> Status {
                               KINTSUGI_ASSIGN_OR_RETURN(const kintsugi_agent::Object* const object, Find(agent, key));
                               *bytes = object->bytes.data();
                               *size_bytes = object->bytes.size();
                               return Status::Ok();
                             }),
                   error);
}
