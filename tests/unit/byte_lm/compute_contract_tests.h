// The tests of compute_contract.h; included by each program that has an implementation to hold against the host's.
#pragma once

#include "integrations/examples/byte_lm/dropout.h"
#include "tests/unit/byte_lm/compute_contract.h"

namespace kintsugi::byte_lm {

constexpr double kRounding = 1e-5;  // of sums of some hundred terms; elements alone are much closer

TEST_P(ComputeContract, LinearLayersAndTheirGradients) {
  for (const LinearShape& s :
       {LinearShape{5, 7, 3}, LinearShape{64, 32, 96}, LinearShape{1, 1, 1}, LinearShape{33, 130, 65}}) {
    const auto rows = static_cast<size_t>(s.rows), in = static_cast<size_t>(s.inputs),
               out = static_cast<size_t>(s.outputs);
    const auto x = RandomFloats(1, rows * in), w = RandomFloats(2, out * in), b = RandomFloats(3, out),
               dy = RandomFloats(4, rows * out);
    ExpectAsOnHost(
        [&](Compute<float>& c, Arrays& a) {
          float *y = a.Empty(rows * out), *plain = a.Empty(rows * out), *dx = a.Empty(rows * in),
                *dw = a.Empty(out * in), *db = a.Empty(out);
          const float *ax = a.Put(x), *aw = a.Put(w), *ady = a.Put(dy);
          c.LinearForward(s, ax, aw, a.Put(b), y);
          c.LinearForward(s, ax, aw, nullptr, plain);
          c.LinearInputGradient(s, ady, aw, dx);
          c.LinearWeightGradient(s, ax, ady, dw, db);
          return Outputs{{y, rows * out}, {plain, rows * out}, {dx, rows * in}, {dw, out * in}, {db, out}};
        },
        kRounding, "linear " + std::to_string(rows) + "x" + std::to_string(in) + "x" + std::to_string(out));
  }
}

TEST_P(ComputeContract, LayerNormAndItsGradient) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 8}, {9, 64}, {65, 300}, {40, 1024}}) {
    const auto r = static_cast<size_t>(rows), n = static_cast<size_t>(columns), all = r * n;
    const auto x = RandomFloats(5, all, 3), w = RandomFloats(6, n), b = RandomFloats(7, n), dy = RandomFloats(8, all),
               dx = RandomFloats(9, all);
    ExpectAsOnHost(
        [&, rows = rows, columns = columns](Compute<float>& c, Arrays& a) {
          float *y = a.Empty(all), *normalized = a.Empty(all), *inverse = a.Empty(r), *adx = a.Put(dx),
                *dw = a.Empty(n), *db = a.Empty(n);
          const float* aw = a.Put(w);
          c.LayerNormForward(rows, columns, 1e-5f, a.Put(x), aw, a.Put(b), {normalized, inverse}, y);
          c.LayerNormBackward(rows, columns, a.Put(dy), aw, {normalized, inverse}, adx, dw, db);
          return Outputs{{y, all}, {normalized, all}, {inverse, r}, {adx, all}, {dw, n}, {db, n}};
        },
        2 * kRounding, "layer norm of " + std::to_string(rows) + " rows");
  }
}

TEST_P(ComputeContract, GeluAndItsGradient) {
  constexpr size_t kCount = 1000;
  const auto x = RandomFloats(10, kCount, 4), dy = RandomFloats(11, kCount);
  ExpectAsOnHost(
      [&](Compute<float>& c, Arrays& a) {
        float *y = a.Empty(kCount), *inner = a.Empty(kCount), *dx = a.Put(dy), *ax = a.Put(x);
        c.GeluForward(kCount, ax, inner, y);
        c.GeluBackward(kCount, ax, inner, dx, dx);
        return Outputs{{y, kCount}, {inner, kCount}, {dx, kCount}};
      },
      kRounding, "gelu");
}

TEST_P(ComputeContract, AttentionAndItsGradient) {
  for (const AttentionShape& s :
       {AttentionShape{1, 4, 1, 4}, AttentionShape{3, 20, 2, 8}, AttentionShape{2, 300, 3, 4}}) {
    const auto qkv_count = static_cast<size_t>(s.batch * s.context * s.QkvColumns());
    const auto out_count = static_cast<size_t>(s.batch * s.context * s.OutColumns());
    const auto scores = static_cast<size_t>(s.ProbabilityCount());
    const auto qkv = RandomFloats(12, qkv_count, 2), dout = RandomFloats(13, out_count);
    ExpectAsOnHost(
        [&](Compute<float>& c, Arrays& a) {
          float *p = a.Empty(scores), *out = a.Empty(out_count), *dqkv = a.Empty(qkv_count),
                *scratch = a.Empty(c.AttentionScratch(s)), *in = a.Put(qkv);
          c.AttentionForward(s, in, p, out);
          c.AttentionBackward(s, in, p, a.Put(dout), scratch, dqkv);
          return Outputs{{p, scores}, {out, out_count}, {dqkv, qkv_count}};
        },
        2 * kRounding, "attention over " + std::to_string(s.context));
  }
}

TEST_P(ComputeContract, EmbeddingAndItsGradient) {
  const EmbeddingShape s{30, 10, 256, 12};
  // Few different bytes, so that many rows meet in one entry.
  const auto inputs = RandomBytes(14, 30, 5);
  const auto token = RandomFloats(15, 256 * 12), position = RandomFloats(16, 10 * 12), dout = RandomFloats(17, 30 * 12);
  ExpectAsOnHost(
      [&](Compute<float>& c, Arrays& a) {
        float *out = a.Empty(360), *dtoken = a.Empty(256 * 12), *dposition = a.Empty(120);
        const uint8_t* bytes = a.Put(inputs);
        c.EmbedForward(s, bytes, a.Put(token), a.Put(position), out);
        c.EmbedBackward(s, bytes, a.Put(dout), dtoken, dposition);
        return Outputs{{out, 360}, {dtoken, 256 * 12}, {dposition, 120}};
      },
      kRounding, "embedding");
}

TEST_P(ComputeContract, CrossEntropyAndItsGradient) {
  for (const auto& [rows, vocabulary] : {std::pair<int64_t, int64_t>{1, 256}, {70, 256}, {300, 300}}) {
    const auto count = static_cast<size_t>(rows * vocabulary);
    const auto logits = RandomFloats(18, count, 6);
    const auto targets = RandomBytes(19, static_cast<size_t>(rows), 256);
    ExpectAsOnHost(
        [&, rows = rows, vocabulary = vocabulary](Compute<float>& c, Arrays& a) {
          float *gradient = a.Empty(count), *loss = a.Empty(1);
          double* sum = a.Put(std::vector<double>(1));
          c.CrossEntropy(rows, vocabulary, a.Put(logits), a.Put(targets), gradient, sum);
          c.Narrow(sum, loss);
          return Outputs{{gradient, count}, {loss, 1}};
        },
        kRounding, "cross-entropy of " + std::to_string(rows) + " rows");
  }
}

TEST_P(ComputeContract, MasksAreTheHostsBitForBit) {
  for (size_t count : {1u, 2u, 511u, 4096u}) {
    DropoutGenerator generator(3, 1, 2);
    const DropoutDraws draws = generator.Draw(0.3, count);
    ExpectAsOnHost(
        [&](Compute<float>& c, Arrays& a) {
          float* mask = a.Empty(count + 1);
          c.FillMask(draws, 0.3, count, mask);
          return Outputs{{mask, count + 1}};
        },
        0, "mask of " + std::to_string(count));
  }
}

TEST_P(ComputeContract, ElementsOneByOne) {
  constexpr size_t kCount = 777;
  const auto x = RandomFloats(20, kCount), y = RandomFloats(21, kCount), z = RandomFloats(22, kCount);
  ExpectAsOnHost(
      [&](Compute<float>& c, Arrays& a) {
        float *filled = a.Empty(kCount), *copied = a.Empty(kCount), *scaled = a.Put(x), *added = a.Put(x),
              *joined = a.Put(x), *product = a.Empty(kCount), *in_place = a.Put(y), *biased = a.Put(x);
        const float *ay = a.Put(y), *az = a.Put(z);
        c.Fill(kCount - 1, 2.5f, filled);
        c.Copy(kCount - 1, ay, copied);
        c.Scale(kCount, 0.37f, scaled);
        c.Add(kCount, ay, added);
        c.AddProduct(kCount, ay, az, joined);
        c.Product(kCount, ay, az, product);
        c.Product(kCount, in_place, az, in_place);
        c.AddBias(7, 111, ay, biased);
        return Outputs{{filled, kCount}, {copied, kCount},  {scaled, kCount},   {added, kCount},
                       {joined, kCount}, {product, kCount}, {in_place, kCount}, {biased, kCount}};
      },
      1e-6, "elements");
}

TEST_P(ComputeContract, OptimizerAndNorm) {
  for (size_t count : {1u, 300u, 5000u, 200000u}) {
    const auto gradient = RandomFloats(23, count), master = RandomFloats(24, count),
               mean = RandomFloats(25, count, 0.1);
    auto square = RandomFloats(26, count, 0.1);
    for (float& value : square) value = std::fabs(value);
    const AdamConstants<float> k{0.7f, 0.9f, 0.1f, 0.99f, 0.01f, 1.5f, 2.5f, 1e-8f, 1e-2f, 1e-4f};
    ExpectAsOnHost(
        [&](Compute<float>& c, Arrays& a) {
          float *m = a.Put(master), *v = a.Put(mean), *s = a.Put(square), *norm = a.Empty(1);
          const float* g = a.Put(gradient);
          double* sum = a.Put(std::vector<double>(1));
          c.SumOfSquares(count, g, sum);
          c.Narrow(sum, norm);
          c.AdamUpdate(k, count, g, m, v, s);
          return Outputs{{m, count}, {v, count}, {s, count}, {norm, 1}};
        },
        kRounding, "update of " + std::to_string(count));
  }
}

TEST_P(ComputeContract, MemoryIsZeroAndRoundsTripsAreExact) {
  Compute<float>& compute = *case_.compute;
  ComputeArray<uint8_t> bytes(compute, 3 << 20);
  std::vector<uint8_t> sent = RandomBytes(27, bytes.size(), 256), got(bytes.size(), 1);
  ASSERT_TRUE(compute.Download(got.data(), bytes.data(), got.size()).ok());
  EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](uint8_t byte) { return byte == 0; }));
  compute.Upload(bytes.data(), sent.data(), sent.size());
  ASSERT_TRUE(compute.Download(got.data(), bytes.data(), got.size()).ok());
  EXPECT_EQ(got, sent);
}

}  // namespace kintsugi::byte_lm
