// Overloaded: one visitor out of several lambdas, for std::visit.
#pragma once

namespace kintsugi {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
// Clang before 17 deduces no aggregate's arguments by itself.
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace kintsugi
