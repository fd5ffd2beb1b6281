#include "integrations/cpp/gloo_world.h"

namespace kintsugi {
namespace {

GlooWorld& Self(void* context) { return *static_cast<GlooWorld*>(context); }

}  // namespace

Status GlooWorld::RegisterWith(Agent& agent) {
  KINTSUGI_RETURN_IF_ERROR(agent.RegisterHandler(HandlerKind::kStop, Stop, this));
  KINTSUGI_RETURN_IF_ERROR(agent.RegisterHandler(HandlerKind::kClean, Clean, this));
  return agent.RegisterHandler(HandlerKind::kRebuildGroup, Rebuild, this);
}

Status GlooWorld::Stop(HandlerContext&, void* self) {
  if (const GlooDevice device = Self(self).device_) AbortGlooDevice(device);
  return Status::Ok();
}

Status GlooWorld::Clean(HandlerContext&, void* self) {
  Self(self).group_.reset();
  return Status::Ok();
}

Status GlooWorld::Rebuild(HandlerContext& call, void* self) {
  GlooWorld& world = Self(self);
  GlooGroupOptions group{.prefix = "world",
                         .rank = call.Number(),
                         .size = call.world_size,
                         .deadline = call.deadline,
                         .cancel = call.cancel,
                         .unreached = &call.unreached};
  KINTSUGI_ASSIGN_OR_RETURN(group.device, CreateGlooDevice(world.address_));
  world.device_ = group.device;
  KINTSUGI_ASSIGN_OR_RETURN(world.group_, GlooGroup::Connect(*call.store, group));
  return Status::Ok();
}

}  // namespace kintsugi
