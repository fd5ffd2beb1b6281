// Overloaded: one visitor out of several lambdas, for std::visit.
#pragma once

namespace kintsugi {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace kintsugi
