// What recurrent.cpp offers to the operators: whole sequences of an LSTM or GRU layer.
#pragma once
#include "recurrent_cells.h"

namespace mollifier {

// Fills what is given of each direction, forward or backward. sizes: rows of each step.
template <class T>
void recurrent(bool lstm, bool backward, const Options& o, const int64_t* sizes, const Direction<T>* d, int directions, int threads);

}  // namespace mollifier
