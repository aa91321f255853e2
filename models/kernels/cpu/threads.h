// Work cut into runs of neighbours, one for each thread, and the memory that threads keep.
#pragma once
#include <algorithm>
#include <thread>
#include <vector>

#include "tile.h"

inline thread_local Arena weights_arena, tile_arena, gradients_arena;

// Threads that are worth starting: each has a fraction of a millisecond to do at least.
inline int64_t worthwhile_threads(const Shape &s, int64_t items) {
  const int64_t turns = 2 * (s.u_stages + s.v_stages);
  const int64_t row = s.size * gates_of(s) * (s.inputs + (turns ? turns : s.rank ? 2 * s.rank : s.size));
  const double work = double(s.models) * s.steps * s.batch * row;
  return std::max<int64_t>(1, std::min({s.threads, items, int64_t(work / 4e6) + 1}));
}

// work(thread, begin, end) for every run of items.
template <class Work> inline void in_parallel(int64_t threads, int64_t items, Work work) {
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; i++)
    others.emplace_back(work, i, items * i / threads, items * (i + 1) / threads);
  work(0, 0, items / threads);
  for (std::thread &other : others) other.join();
}

