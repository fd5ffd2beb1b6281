// The answer to one question (FindShardSources), over an evaluation.
#pragma once

#include <vector>

#include "replica/aoa/engine.h"
#include "replica/aoa/evaluator.h"

namespace kintsugi::aoa {

class Query {
 public:
  Query(const Evaluation& evaluation, const StateNames& names, const Tensors& source, const Tensors* destination,
        const Target& target, Reporter& reporter)
      : evaluation_(evaluation),
        names_(names),
        source_(source),
        destination_(destination),
        target_(target),
        reporter_(reporter) {}

  Result<std::vector<ShardSource>> Run();

 private:
  Status Fail(const std::string& message, StatusCode code = StatusCode::kInvalidArgument);
  Status CheckBox(const Shape& shape);
  Status CheckDType();
  // Pieces of the product; with a form, of its states.
  Result<std::vector<ShardSource>> Pieces(const StateForm* form);
  Result<std::vector<ShardSource>> OwnState();
  Result<std::vector<ShardSource>> Scalar(const StateForm& form);
  Status CheckStates(const std::vector<ShardSource>& pieces, const StateForm& form);

  const Evaluation& evaluation_;
  const StateNames& names_;
  const Tensors& source_;
  const Tensors* const destination_;
  const Target& target_;
  Reporter& reporter_;
  const Product* product_ = nullptr;
};

}  // namespace kintsugi::aoa
