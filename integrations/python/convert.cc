// A checkpoint made of another one, through an AOA program whose macros may be Python's.
#include "replica/formats/convert.h"

#include <macros.h>
#include <nanobind/stl/map.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "replica/aoa/program_text.h"

namespace kintsugi::python {
namespace {

Result<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status(StatusCode::kInvalidArgument, "the AOA program '" + path + "' cannot be read");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

aoa::UserMacro MacroOf(const nb::object& function) {
  return [function = function.ptr()](const aoa::MacroCall& call) -> Result<std::vector<std::string>> {
    std::vector<std::string> statements;
    std::string text;
    if (CallWord(function, call.left, call.right, call.attributes, call.source_shape, call.destination_shape,
                 &statements, &text))
      return statements;
    return Status(StatusCode::kInvalidArgument, text);
  };
}

struct Made {
  std::string path;
  uint64_t tensors, objects, step;
  std::vector<std::string> notes;
};

Made Convert(const std::string& source, const std::string& destination, const std::string& to,
             const std::string& program, const std::vector<std::string>& statements, const WordFunctions& macros,
             int shards, bool overwrite) {
  formats::ConvertOptions options;
  options.to_format = to;
  options.statements = statements;
  options.lay.shards = shards;
  options.write.overwrite = overwrite;
  for (const auto& [word, function] : macros) options.macros[word] = MacroOf(function);
  const auto convert = [&]() -> Result<formats::Converted> {
    if (!program.empty()) {
      KINTSUGI_ASSIGN_OR_RETURN(aoa::ProgramText text, aoa::ReadProgram(program, ReadText));
      options.statements = std::move(text.statements);
      options.reverse = text.reverse;
    }
    return formats::Convert(source, destination, options);
  };
  const Result<formats::Converted> made = [&] {
    nb::gil_scoped_release unlocked;
    return convert();
  }();
  if (!made.ok()) throw DoorError(static_cast<int>(made.status().code()), made.status().message());
  return {made->path, made->tensors, made->objects, made->step, made->notes};
}

}  // namespace

void BindConvert(nb::module_& module) {
  nb::class_<Made>(module, "Made")
      .def_ro("path", &Made::path)
      .def_ro("tensors", &Made::tensors)
      .def_ro("objects", &Made::objects)
      .def_ro("step", &Made::step)
      .def_ro("notes", &Made::notes);
  module.def("convert", Convert, nb::arg("source"), nb::arg("destination"), nb::arg("to"), nb::arg("program"),
             nb::arg("statements"), nb::arg("macros"), nb::arg("shards"), nb::arg("overwrite"));
}

}  // namespace kintsugi::python
