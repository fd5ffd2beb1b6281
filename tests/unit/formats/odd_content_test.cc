// Content that is odd, and allowed: names that lead out of a folder, sizes that no product holds, texts that are no UTF-8,
// ties in a row, lists with holes. It is written as it is or refused by name, and nothing of it is lost on the way.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "callbacks/state/key.h"
#include "replica/formats/compare.h"
#include "replica/formats/convert.h"
#include "replica/formats/dcp/metadata.h"
#include "replica/formats/model_buffers.h"
#include "replica/formats/object_text.h"
#include "replica/formats/safetensors/header.h"
#include "replica/formats/save_as.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/values.h"
#include "replica/formats/verify.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/formats/hostile.h"
#include "tests/unit/formats/made_up_ranks.h"

namespace kintsugi::formats {
namespace {

using namespace std::string_literals;
using pickle::PickleWriter;

void WriteFile(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// FILE.pt of one storage, "0".
void WritePt(const std::string& path, const std::function<void(PickleWriter*)>& write, const std::string& storage) {
  PickleWriter writer;
  write(&writer);
  WriteFile(path,
            ZipOf({{"data.pkl", writer.Finish()}, {"byteorder", "little"}, {"data/0", storage}, {"version", "3\n"}}));
}

// {key: {key: .. value}}.
void Nested(PickleWriter* writer, const std::vector<std::string>& keys, const std::function<void()>& value) {
  for (const std::string& key : keys) {
    writer->EmptyDict();
    writer->Mark();
    writer->Text(key);
  }
  value();
  for (size_t i = 0; i < keys.size(); ++i) writer->SetItems();
}

void WriteSafetensors(const std::string& path, const std::vector<safetensors::HeaderTensor>& tensors,
                      const std::map<std::string, std::string>& fields = {}) {
  const auto header = safetensors::WriteHeader(tensors, fields);
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  std::string data;
  for (uint64_t i = 0; i < (tensors.empty() ? 0 : tensors.back().end); ++i) data += static_cast<char>(i * 37 + 11);
  WriteFile(path, *header + data);
}

Result<Converted> To(const std::string& from, const std::string& to, const std::string& format,
                     ConvertOptions options = {}) {
  options.to_format = format;
  return Convert(from, to, options);
}

void ExpectNamed(const Status& status, StatusCode code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

// What `format` made of it is the same again.
void ExpectSame(const std::string& left, const std::string& right, const std::string& format) {
  const auto wanted = ReadCatalog(left), found = ReadCatalog(right);
  ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
  ASSERT_TRUE(found.ok()) << format << ": " << found.status().ToString();
  const auto compared = Compare(*wanted, *found, {});
  ASSERT_TRUE(compared.ok()) << compared.status().ToString();
  EXPECT_TRUE(compared->differences.empty()) << format << ": " << compared->differences.front().key;
}

TEST(OddNames, NoStateOfAParameterLeadsOutOfTheFolder) {
  const TemporaryFolder folder;
  for (const bool is_tensor : {true, false}) {
    WritePt(
        folder / "in.pt",
        [&](PickleWriter* writer) {
          Nested(writer, {"zero", "w"}, [&] {
            writer->EmptyDict();
            writer->Mark();
            writer->Text("fp32");
            torch::WriteTensor("0", DType::kFloat32, {2}, writer);
            writer->Text("../../../../escaped");
            if (is_tensor)
              torch::WriteTensor("0", DType::kFloat32, {2}, writer);
            else
              writer->Int(3);
            writer->SetItems();
          });
        },
        std::string(8, '\1'));
    const auto made = To(folder / "in.pt", folder / "out", "deepspeed-universal");
    ExpectNamed(made.status(), StatusCode::kInvalidArgument, "'../../../../escaped'");
    EXPECT_FALSE(std::filesystem::exists(folder / "escaped.pt"));
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
}

TEST(OddNames, AnObjectCalledAsTheOptimizersOwnIsOneAmongOthers) {
  const TemporaryFolder folder;
  WritePt(
      folder / "in.pt",
      [](PickleWriter* writer) {
        writer->EmptyDict();
        writer->Mark();
        writer->Text("optimizer_state");
        writer->Int(7);
        writer->Text("zero");
        Nested(writer, {"w", "fp32"}, [&] { torch::WriteTensor("0", DType::kFloat32, {2}, writer); });
        writer->SetItems();
      },
      std::string(8, '\1'));
  for (const char* format : {"deepspeed", "deepspeed-universal"}) {
    const auto made = To(folder / "in.pt", folder / format, format);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    const auto found = ReadCatalog(folder / format);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    const auto* const value = SavedValues(found->objects()).Find("optimizer_state");
    ASSERT_NE(value, nullptr) << format;
    EXPECT_EQ(*value, Values::Value(int64_t{7})) << format;
  }
}

TEST(OddNames, WhatIsCalledAsTheRunsValuesIsNotLostBesideThem) {
  const TemporaryFolder folder;
  WritePt(
      folder / "in.pt",
      [](PickleWriter* writer) {
        writer->EmptyDict();
        writer->Mark();
        writer->Text("w");
        torch::WriteTensor("0", DType::kFloat32, {2}, writer);
        writer->Text("values");
        writer->Numbers(std::array<int64_t, 2>{1, 2});
        writer->Text("epoch");
        writer->Int(3);
        writer->SetItems();
      },
      std::string(8, '\1'));
  ASSERT_TRUE(To(folder / "in.pt", folder / "native", "native").ok());
  ASSERT_TRUE(To(folder / "native", folder / "out.pt", "torch").ok());
  const auto found = ReadCatalog(folder / "out.pt");
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_NE(SavedValues(found->objects()).Find("epoch"), nullptr);
  EXPECT_EQ(found->objects().size(), 2u);
}

TEST(OddNames, AnObjectOfARankAndOneOfNoneThatWouldBeOneAreRefused) {
  const TemporaryFolder folder;
  std::map<std::string, std::string> fields;
  for (const char* key : {"x", "rank-00000/x"})
    fields["kintsugi.object:"s + key] = ObjectToText({key, CatalogObject::Form::kBytes, key, {}});
  WriteSafetensors(folder / "in.safetensors", {{"w", DType::kUInt8, {2}, 0, 2}}, fields);
  ExpectNamed(To(folder / "in.safetensors", folder / "out", "native").status(), StatusCode::kInvalidArgument,
              "'rank-00000/x'");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(OddNames, ACopyThatIsCalledAsAnotherTensorIsNotMade) {
  const auto text = [](std::initializer_list<std::string> parts) {
    Path path;
    for (const std::string& part : parts) path.push_back({PathPart::Kind::kText, part, 0});
    return path;
  };
  const Content content = {{"zero.a.b.fp32", DType::kFloat32, {2}, text({"zero", "a", "b.fp32"})},
                           {"module.a.b", DType::kFloat32, {2}, text({"module", "a.b"})}};
  const auto universal = FormatNamed("deepspeed-universal");
  ASSERT_TRUE(universal.ok());
  for (const TypedCopy& copy : (*universal)->CopiesOf(content)) EXPECT_NE(copy.tensor.key, content[0].key);
}

// As Python writes what os.fsdecode made of a name that is no UTF-8.
TEST(OddTexts, WhatIsNoUtf8GoesThroughEveryFormat) {
  const TemporaryFolder folder;
  const std::string text = "run-\xed\xb2\x80";
  WritePt(
      folder / "in.pt",
      [&](PickleWriter* writer) {
        writer->EmptyDict();
        writer->Mark();
        writer->Text("w");
        torch::WriteTensor("0", DType::kFloat32, {2}, writer);
        writer->Text("name");
        writer->Text(text);
        writer->Text(text);
        writer->Numbers(std::array<int64_t, 2>{1, 2});
        writer->SetItems();
      },
      std::string(8, '\1'));
  for (const char* format : {"safetensors", "native", "dcp", "paddle", "torch"}) {
    const std::string out = folder / (format == "torch"s ? "out.pt"s : format);
    const auto made = To(folder / "in.pt", out, format);
    ASSERT_TRUE(made.ok()) << format << ": " << made.status().ToString();
    if (format != "native"s) ExpectSame(folder / "in.pt", out, format);  // there objects are ranks'
  }
}

TEST(OddTexts, BytesThatAreNoLatin1AreNotTakenForOthers) {
  for (const char* const text : {"\x80\x80", "\xc0\x80", "\xc3", "\xc3\x41"}) {
    PickleWriter writer;
    writer.Global("_codecs", "encode");
    writer.Mark();
    writer.Text(text);
    writer.Text("latin1");
    writer.Tuple();
    writer.Call();
    EXPECT_EQ(BytesOf({"object", CatalogObject::Form::kPickle, writer.Finish(), {}}).status().code(),
              StatusCode::kDataLoss)
        << EscapedKey(text);
  }
}

TEST(OddTexts, OneThatIsSharedIsNotWrittenAgainWithoutEnd) {
  constexpr uint32_t kBytes = 128u << 20;
  std::string pickled = "\x80\x02](X";
  pickled.append(reinterpret_cast<const char*>(&kBytes), sizeof(kBytes));
  pickled.append(kBytes, 'x');
  pickled += "q"s + '\0';
  for (int i = 0; i < 9; ++i) pickled += "h"s + '\0';
  pickled += "e.";
  const auto tree = pickle::Parse(pickled, "file");
  ASSERT_TRUE(tree.ok()) << tree.status().ToString();
  PickleWriter writer;
  ExpectNamed(WriteNode(*tree, tree->root, "file", &writer), StatusCode::kInvalidArgument, "'file', byte");
  EXPECT_LE(writer.size_bytes(), pickle::kPickleBytesMax);
}

TEST(OddSizes, TheNamesOfALargeModelAreReadBackFromDcp) {
  const TemporaryFolder folder;
  std::vector<safetensors::HeaderTensor> tensors;
  for (uint64_t i = 0; i < 1500; ++i)
    tensors.push_back({"model/model.layers." + std::to_string(i) + ".mlp.experts.0.down_proj.weight_of_this",
                       DType::kUInt8,
                       {1},
                       i,
                       i + 1});
  WriteSafetensors(folder / "in.safetensors", tensors);
  ASSERT_TRUE(To(folder / "in.safetensors", folder / "native", "native").ok());
  SaveAsOptions options;
  options.format = "dcp";
  const auto saved = SaveAs(folder / "native", folder / "dcp", options);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  ExpectSame(folder / "native", saved->path, "dcp");
}

TEST(OddSizes, BuffersThatNoTensorCanBeAreLeftOutByName) {
  const auto notes_of = [](const char* type, const std::vector<int64_t>& shape) {
    PickleWriter writer = PickleWriter::Protocol4();
    const auto list = [&](const std::function<void()>& items) {
      writer.EmptyList();
      writer.Mark();
      items();
      writer.Appends();
    };
    writer.EmptyDict();
    writer.Mark();
    writer.Text("names");
    list([&] { writer.Text("b"); });
    writer.Text("kinds");
    list([&] {
      list([&] {
        writer.Text(type);
        list([&] {
          for (const int64_t length : shape) writer.Int(length);
        });
        writer.Bool(true);
      });
    });
    writer.Text("bytes");
    const uint64_t bytes = shape.size() > 8 ? 1 : 0;
    writer.RawBytes(bytes);
    const std::string head = writer.Take() + std::string(bytes, 'x');
    writer.SetItems();
    Catalog source("native", "run"), made("native", "run");
    source.AddObject({"rank-00000/model.buffers", CatalogObject::Form::kBytes, head + writer.Finish(), {}});
    EXPECT_TRUE(AddModelBuffers(source, "", &made).empty());
    const Status finished = made.Finish();
    EXPECT_TRUE(finished.ok()) << finished.ToString();
    return made.notes().size();
  };
  EXPECT_EQ(notes_of("uint8", std::vector<int64_t>(9, 1)), 1u);
  EXPECT_EQ(notes_of("float64", {int64_t{1} << 61}), 1u) << "its bytes are no more than nothing, modulo 2^64";
  EXPECT_EQ(notes_of("uint8", {-1}), 1u);
}

TEST(OddSizes, ATensorWhoseBytesNobodyCountsIsRefusedBeforeItIsLaidOut) {
  const TemporaryFolder folder;
  WritePt(
      folder / "in.pt",
      [](PickleWriter* writer) {
        Nested(writer, {"w"}, [&] {
          writer->Global("torch._utils", "_rebuild_tensor_v3");
          writer->Mark();
          writer->Mark();
          writer->Text("storage");
          writer->Global("torch.storage", "UntypedStorage");
          writer->Text("0");
          writer->Text("cpu");
          writer->Int(1);
          writer->Tuple();
          writer->PersistentId();
          writer->Int(0);
          writer->Numbers(std::array<int64_t, 2>{int64_t{1} << 40, int64_t{1} << 22});
          writer->Numbers(std::array<int64_t, 2>{0, 0});
          writer->Bool(false);
          writer->Global("collections", "OrderedDict");
          writer->EmptyTuple();
          writer->Call();
          writer->Global("torch", "float8_e4m3fn");
          writer->Tuple();
          writer->Call();
        });
      },
      "\1");
  ConvertOptions options;
  options.dtype = DType::kFloat64;
  ExpectNamed(To(folder / "in.pt", folder / "out.safetensors", "safetensors", options).status(),
              StatusCode::kInvalidArgument, "'w'");
}

TEST(OddSizes, StridesOfWhatNobodyCountsAreNoDenseOnes) {
  torch::PickledTensor tensor;
  const int64_t large = int64_t{1} << 40;
  tensor.shape = {large, large, large};
  tensor.strides = {0, large, 1};
  EXPECT_FALSE(torch::IsDense(tensor));
  tensor.shape = {2, 3};
  tensor.strides = {3, 1};
  EXPECT_TRUE(torch::IsDense(tensor));
  PickleWriter writer;
  torch::WriteTensor("0", DType::kUInt8, {0, 3'037'000'500, 3'037'000'500}, &writer);
  const std::string pickled = writer.Finish();
  const auto tree = pickle::Parse(pickled, "file");
  ASSERT_TRUE(tree.ok());
  const auto arguments = tree->ArgumentsOf(tree->root, "torch._utils", "_rebuild_tensor_v2");
  ASSERT_TRUE(arguments);
  const auto strides = tree->NumbersOf((*arguments)[3]);
  ASSERT_TRUE(strides);
  for (const int64_t stride : *strides) EXPECT_GT(stride, 0);
}

TEST(OddSizes, CopiesWhoseElementsNoSumHoldsAreCopiesStill) {
  const int64_t half = int64_t{1} << 62;
  Catalog catalog("native", "run");
  const uint32_t file = catalog.AddFile(MappedFile::Holding("bytes", "x"));
  const uint32_t number = catalog.AddTensor({"w", DType::kUInt8, {half + 2}, {}});
  for (int64_t offset = 0; offset < 3; ++offset) {
    CatalogPiece piece;
    piece.tensor = number;
    piece.offset = {offset};
    piece.shape = {half};
    piece.strides = {0};
    piece.file = file;
    piece.bytes = 1;
    catalog.AddPiece(std::move(piece));
  }
  ASSERT_TRUE(catalog.DropOverlaps().ok());
  EXPECT_EQ(catalog.pieces().size(), 1u);
}

TEST(OddSizes, LayersThatNoModelHasAreRefusedByName) {
  const TemporaryFolder folder;
  for (const char* const layer : {"-1", "9223372036854775807", "100000000"}) {
    const std::string name = "decoder.layers."s + layer + ".input_layernorm.weight";
    WriteSafetensors(folder / "in.safetensors", {{name, DType::kFloat32, {2}, 0, 8}});
    ExpectNamed(To(folder / "in.safetensors", folder / "out", "megatron-legacy").status(), StatusCode::kInvalidArgument,
                name);
  }
  const std::string name = "decoder.layers.input_layernorm.weight";
  WriteSafetensors(folder / "in.safetensors", {{name, DType::kFloat32, {int64_t{1} << 40, 0}, 0, 0}});
  ExpectNamed(To(folder / "in.safetensors", folder / "out", "megatron-legacy").status(), StatusCode::kInvalidArgument,
              name);
}

TEST(OddSizes, RanksThatNoRunHasAreNotFollowed) {
  const auto format = FormatNamed("megatron-legacy");
  ASSERT_TRUE(format.ok());
  for (const int64_t ranks : {int64_t{1} << 32, (int64_t{1} << 32) + 2, int64_t{1} << 31, int64_t{0}}) {
    LayOptions lay;
    (*format)->FollowRun({ScalarObject("args.tensor_model_parallel_size", Values::Value(ranks)),
                          ScalarObject("args.pipeline_model_parallel_size", Values::Value(ranks))},
                         &lay);
    EXPECT_EQ(lay.shards, 1) << ranks;
    EXPECT_EQ(lay.stages, 1) << ranks;
  }
}

TEST(OddSizes, NoRanksAreNoLayout) {
  const TemporaryFolder folder;
  WriteSafetensors(folder / "in.safetensors", {{"w", DType::kUInt8, {2}, 0, 2}});
  for (const int count : {0, -1}) {
    ConvertOptions options;
    options.lay.shards = count;
    ExpectNamed(To(folder / "in.safetensors", folder / "out", "dcp", options).status(), StatusCode::kInvalidArgument,
                std::to_string(count));
    options.lay.shards = 1;
    options.lay.stages = count;
    ExpectNamed(To(folder / "in.safetensors", folder / "out", "megatron-legacy", options).status(),
                StatusCode::kInvalidArgument, std::to_string(count));
  }
}

TEST(OddSizes, AMillionRanksThatAreMissingAreCountedAndNotHeld) {
  const TemporaryFolder folder;
  WriteMadeUpRank(folder / "ranks", {.rank = 0});
  std::filesystem::rename(folder / "ranks/model_rank_0.pt", folder / "ranks/model_world_size_999999999_rank_0.pt");
  ExpectNamed(ReadCatalog(folder / "ranks").status(), StatusCode::kDataLoss,
              "of 999999999 ranks; missing are those of rank 1, 2, 3, 4, 5, 6, 7, 8 and 999999990 more");
}

TEST(OddLists, OneWithMoreHolesThanItsItemsIsRefused) {
  const auto leaf = [](int64_t number) {
    return torch::Leaf{{{PathPart::Kind::kText, "list", 0}, {PathPart::Kind::kIndex, "", number}},
                       [](PickleWriter* writer) {
                         writer->Int(1);
                         return Status::Ok();
                       }};
  };
  EXPECT_TRUE(torch::WriteStateDict({leaf(0), leaf(1000)}).ok());
  for (const int64_t number : {int64_t{1} << 40, int64_t{-1}})
    ExpectNamed(torch::WriteStateDict({leaf(0), leaf(number)}).status(), StatusCode::kInvalidArgument,
                "'list." + std::to_string(number) + "'");
}

TEST(OddTies, InARowAreAllTheLastOnes) {
  Catalog catalog("deepspeed", "run");
  const uint32_t file = catalog.AddFile(MappedFile::Holding("bytes", "x"));
  for (const char* const name : {"x", "y", "z"}) {
    CatalogPiece piece;
    piece.tensor = catalog.AddTensor({name, DType::kUInt8, {1}, {}});
    piece.offset = {0};
    piece.shape = {1};
    piece.file = file;
    piece.bytes = 1;
    catalog.AddPiece(std::move(piece));
  }
  for (const auto& [alias, owner] : {std::pair("x", "y"), std::pair("y", "z"), std::pair("z", "x")})
    catalog.AddAlias(alias, owner);
  ASSERT_TRUE(catalog.Finish().ok());
  EXPECT_EQ(catalog.tensors()[0].alias_of, "z");
  EXPECT_EQ(catalog.tensors()[1].alias_of, "z");
  EXPECT_EQ(catalog.tensors()[2].alias_of, "");
  EXPECT_EQ(catalog.ByteCount(), 1u);
}

TEST(OddTies, ToWhatIsNoModelsIsNoTieForDeepSpeed) {
  const TemporaryFolder folder;
  WriteSafetensors(folder / "in.safetensors",
                   {{"model/w", DType::kFloat32, {2}, 0, 8},
                    {"optimizer/w.exp_avg", DType::kFloat32, {2}, 8, 16},
                    {"teacher/emb", DType::kFloat32, {2}, 16, 24}},
                   {{"model/emb", "teacher/emb"}});
  for (const char* format : {"deepspeed", "deepspeed-universal"}) {
    const auto made = To(folder / "in.safetensors", folder / format, format);
    ASSERT_TRUE(made.ok()) << format << ": " << made.status().ToString();
    const auto found = ReadCatalog(folder / format);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_TRUE(std::any_of(found->tensors().begin(), found->tensors().end(), [](const CatalogTensor& tensor) {
      return tensor.key == "module.emb" && tensor.alias_of.empty();
    })) << format;
  }
}

TEST(OddTies, ToWhatStandsElsewhereInTheFileAreTensorsOfTheirOwnForDeepSpeed) {
  const TemporaryFolder folder;
  WritePt(
      folder / "in.pt",
      [](PickleWriter* writer) {
        const auto tensor = [&] { torch::WriteTensor("0", DType::kFloat32, {2}, writer); };
        writer->EmptyDict();
        writer->Mark();
        writer->Text("a");
        tensor();
        writer->Text("module");
        Nested(writer, {"emb"}, tensor);
        writer->Text("b");
        tensor();
        writer->Text("zero");
        Nested(writer, {"w"}, [&] {
          writer->EmptyDict();
          writer->Mark();
          writer->Text("fp32");
          tensor();
          writer->Text("exp_avg");
          tensor();
          writer->SetItems();
        });
        writer->SetItems();
      },
      std::string(8, '\1'));
  for (const char* format : {"deepspeed", "deepspeed-universal"}) {
    const auto made = To(folder / "in.pt", folder / format, format);
    ASSERT_TRUE(made.ok()) << format << ": " << made.status().ToString();
    const auto wanted = ReadCatalog(folder / "in.pt"), found = ReadCatalog(folder / format);
    ASSERT_TRUE(wanted.ok() && found.ok()) << found.status().ToString();
    const auto compared = Compare(*wanted, *found, {});
    ASSERT_TRUE(compared.ok());
    for (const Difference& difference : compared->differences)
      EXPECT_EQ(difference.kind, Difference::Kind::kOnlyRight) << format << ": " << difference.key;
  }
}

TEST(OddFiles, AStorageOfManyTensorsIsVerifiedOnce) {
  const TemporaryFolder folder;
  WritePt(
      folder / "in.pt",
      [](PickleWriter* writer) {
        writer->EmptyDict();
        writer->Mark();
        for (const char* name : {"a", "b", "c"}) {
          writer->Text(name);
          torch::WriteTensor("0", DType::kFloat32, {1000}, writer);
        }
        writer->SetItems();
      },
      std::string(4000, '\1'));
  const auto verified = VerifyAny(folder / "in.pt", "", {});
  ASSERT_TRUE(verified.ok()) << verified.status().ToString();
  EXPECT_EQ(verified->checked_bytes, 4000u);
}

TEST(OddFiles, OneThatIsListedTwiceIsNoSidecar) {
  Sidecar sidecar{"dcp", 1, {}, {}};
  WrittenFile file;
  file.name = "a";
  sidecar.files = {file, file};
  ExpectNamed(DecodeSidecar(EncodeSidecar(sidecar), "file").status(), StatusCode::kDataLoss, "twice");
}

TEST(OddFiles, WhatAKilledWriterOfOneFileLeftIsRemovedWithItsSidecar) {
  const TemporaryFolder folder;
  WriteSafetensors(folder / "in.safetensors", {{"w", DType::kUInt8, {2}, 0, 2}});
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  const std::string left = folder / ("out.safetensors.unfinished-" + std::to_string(ended));
  WriteFile(left, "half");
  WriteFile(SidecarPath(left, false), "half");
  ASSERT_TRUE(To(folder / "in.safetensors", folder / "out.safetensors", "safetensors").ok());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_FALSE(std::filesystem::exists(SidecarPath(left, false)));
}

TEST(OddFiles, NoFolderOnTheWayToOneIsALink) {
  const TemporaryFolder folder;
  WriteSafetensors(folder / "in.safetensors", {{"w", DType::kUInt8, {2}, 0, 2}});
  ASSERT_TRUE(To(folder / "in.safetensors", folder / "out", "dcp").ok());
  const auto file = MappedFile::Open(folder / "out/.metadata", ".metadata");
  ASSERT_TRUE(file.ok());
  auto metadata = dcp::Decode((*file)->text(), ".metadata");
  ASSERT_TRUE(metadata.ok());
  for (dcp::StorageEntry& stored : metadata->stored) stored.file = "ranks/" + stored.file;
  WriteFile(folder / "out/.metadata", dcp::Encode(*metadata));
  std::filesystem::create_directory(folder / "out/ranks");
  std::filesystem::rename(folder / "out/__0_0.distcp", folder / "out/ranks/__0_0.distcp");
  const auto below = ReadCatalog(folder / "out");
  EXPECT_TRUE(below.ok()) << below.status().ToString();
  std::filesystem::rename(folder / "out/ranks", folder / "elsewhere");
  std::filesystem::create_directory_symlink("../elsewhere", folder / "out/ranks");
  ExpectNamed(ReadCatalog(folder / "out").status(), StatusCode::kInvalidArgument, "symbolic link");
}

}  // namespace
}  // namespace kintsugi::formats
