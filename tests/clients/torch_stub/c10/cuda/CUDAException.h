#pragma once
#include "torch_stub.hpp"
