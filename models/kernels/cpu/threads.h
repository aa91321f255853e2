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

// Items that threads take runs of: `each` neighbours are of one model.
struct Runs {
  int64_t threads, items, each = 1;

  int64_t begin(int64_t thread) const { return items * thread / threads; }
  // The first model of a thread, and whether a thread before it began that.
  int64_t model(int64_t thread) const { return begin(thread) / each; }
  bool goes_on(int64_t thread) const { return begin(thread) % each != 0; }
};

// work(thread, begin, end) for every run of items.
template <class Work> inline void in_parallel(const Runs &runs, Work work) {
  std::vector<std::thread> others;
  for (int64_t i = 1; i < runs.threads; i++) others.emplace_back(work, i, runs.begin(i), runs.begin(i + 1));
  work(0, 0, runs.begin(1));
  for (std::thread &other : others) other.join();
}

