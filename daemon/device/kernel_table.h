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

template <typename Family>
constexpr KernelTable MakeKernelTable() {
  KernelTable table;
  FillExpAvgSqTypes<Family, DataType::kFloat32>(table.adam[0]);
  FillExpAvgSqTypes<Family, DataType::kBFloat16>(table.adam[1]);
  FillExpAvgSqTypes<Family, DataType::kFloat16>(table.adam[2]);
  table.widen[0] = &Family::template Convert<DataType::kFloat32, DataType::kFloat32>;
  table.widen[1] = &Family::template Convert<DataType::kBFloat16, DataType::kFloat32>;
  table.widen[2] = &Family::template Convert<DataType::kFloat16, DataType::kFloat32>;
  table.narrow[0] = &Family::template Convert<DataType::kFloat32, DataType::kFloat32>;
  table.narrow[1] = &Family::template Convert<DataType::kFloat32, DataType::kBFloat16>;
  table.narrow[2] = &Family::template Convert<DataType::kFloat32, DataType::kFloat16>;
  return table;
}

}  // namespace moment::device
