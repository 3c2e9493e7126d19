// Registers a device guard and hooks for CUDA, so that tensors can name cuda:0 as their device, with a CPU build of torch
// and with a CUDA build. No memory of a card is allocated, and streams and events do nothing: `device.py` computes every
// operator on the CPU.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace at {

// One card with number 0, which is always current. torch looks up the class by this name.
struct CUDAHooks : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
};

// A CUDA build registers hooks of the same name with the default priority when it is loaded.
C10_REGISTER_CLASS_WITH_PRIORITY(CUDAHooksRegistry, CUDAHooks, c10::REGISTRY_PREFERRED, CUDAHooks)

}  // namespace at

namespace {

using c10::Device;
using c10::DeviceType;
using c10::Stream;

// The autograd engine asks the guard for devices and streams; it has one thread per device.
struct SimulatedGuard : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  static Device card() { return Device(DeviceType::CUDA, 0); }
  static Stream stream() { return Stream(Stream::DEFAULT, card()); }
  Device getDevice() const override { return card(); }
  Device exchangeDevice(Device) const override { return card(); }
  Stream getStream(Device) const noexcept override { return stream(); }
  Stream getNewStream(Device, int) const override { return stream(); }
  Stream exchangeStream(Stream) const noexcept override { return stream(); }
  void record(void**, const Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(CUDA, SimulatedGuard)

// Called after torch is imported: a CUDA build has registered its own guard then.
extern "C" void register_guard() { c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, new SimulatedGuard()); }
