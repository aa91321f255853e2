// Tensors from and to the test that runs a program under an emulator.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using Floats = std::vector<float>;

// An int64 count, then as many numbers.
template <class T = float> std::vector<T> read_tensor() {
  int64_t count = 0;
  if (fread(&count, sizeof count, 1, stdin) != 1) exit(2);
  std::vector<T> found(count);
  if (count && fread(found.data(), sizeof(T), count, stdin) != (size_t)count) exit(2);
  return found;
}

inline void write(const Floats &values) { fwrite(values.data(), sizeof(float), values.size(), stdout); }
