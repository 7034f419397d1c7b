#pragma once

#include "daemon/device/kernels.h"

// Fills a KernelTable from a family of templates. Included by files that are compiled for one
// instruction set each, so everything here is instantiated with a type of an unnamed namespace:
// nothing compiled for one processor may be linked in place of the same function for another.
namespace moment::device {

template <typename Family, DataType ExpAvg, DataType ExpAvgSq, DataType Gradient>
constexpr void FillParameterTypes(AdamKernel (&row)[3]) {
  row[0] = &Family::template Adam<ExpAvg, ExpAvgSq, Gradient, DataType::kFloat32>;
  row[1] = &Family::template Adam<ExpAvg, ExpAvgSq, Gradient, DataType::kBFloat16>;
  row[2] = &Family::template Adam<ExpAvg, ExpAvgSq, Gradient, DataType::kFloat16>;
}

template <typename Family, DataType ExpAvg, DataType ExpAvgSq>
constexpr void FillGradientTypes(AdamKernel (&rows)[3][3]) {
  FillParameterTypes<Family, ExpAvg, ExpAvgSq, DataType::kFloat32>(rows[0]);
  FillParameterTypes<Family, ExpAvg, ExpAvgSq, DataType::kBFloat16>(rows[1]);
  FillParameterTypes<Family, ExpAvg, ExpAvgSq, DataType::kFloat16>(rows[2]);
}

template <typename Family, DataType ExpAvg>
constexpr void FillExpAvgSqTypes(AdamKernel (&rows)[2][3][3]) {
  FillGradientTypes<Family, ExpAvg, DataType::kFloat32>(rows[0]);
  FillGradientTypes<Family, ExpAvg, DataType::kBFloat16>(rows[1]);
}

template <typename Family, DataType From>
constexpr void FillDestinationTypes(ConvertKernel (&row)[3]) {
  row[0] = &Family::template Convert<From, DataType::kFloat32>;
  row[1] = &Family::template Convert<From, DataType::kBFloat16>;
  row[2] = &Family::template Convert<From, DataType::kFloat16>;
}

template <typename Family>
constexpr KernelTable MakeKernelTable() {
  KernelTable table;
  FillExpAvgSqTypes<Family, DataType::kFloat32>(table.adam[0]);
  FillExpAvgSqTypes<Family, DataType::kBFloat16>(table.adam[1]);
  FillExpAvgSqTypes<Family, DataType::kFloat16>(table.adam[2]);
  FillDestinationTypes<Family, DataType::kFloat32>(table.convert[0]);
  FillDestinationTypes<Family, DataType::kBFloat16>(table.convert[1]);
  FillDestinationTypes<Family, DataType::kFloat16>(table.convert[2]);
  table.refresh[0] = &Family::template Refresh<DataType::kFloat32>;
  table.refresh[1] = &Family::template Refresh<DataType::kBFloat16>;
  table.refresh[2] = &Family::template Refresh<DataType::kFloat16>;
  return table;
}

}  // namespace moment::device
