/* Stands in for the kernel driver of Apple GPUs (asahi_drm.h), so that Mesa's Vulkan driver opens a device that is not there
 * and compiles shaders for it. Built with the framework of Mesa's shims (drm_shim.h). Buffers are memory of this process;
 * everything else succeeds without an effect. AGX_GPU selects the GPU: g13g (M1) or g14g (M2), and so on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <drm/asahi_drm.h>
#include "drm-shim/drm_shim.h"

bool drm_shim_driver_prefers_first_render_node = true;

static int does_nothing(int fd, unsigned long request, void *arg)
{
   return 0;
}

/* Answers with the GPU that AGX_GPU names: its generation, variant and one cluster of eight cores. */
static int get_params(int fd, unsigned long request, void *arg)
{
   struct drm_asahi_get_params *get = arg;
   const char *name = getenv("AGX_GPU");
   unsigned generation = 13;
   char variant = 'g';
   if (get->param_group != 0 || (name && sscanf(name, "g%u%c", &generation, &variant) != 2))
      return -EINVAL;
   struct drm_asahi_params_global params = {
      .gpu_generation = generation,
      .gpu_variant = variant - 'a' + 'A',
      .chip_id = generation == 13 ? 0x8103 : 0x8112,
      .num_dies = 1,
      .num_clusters_total = 1,
      .num_cores_per_cluster = 8,
      .max_frequency_khz = 1278000,
      .core_masks = {0xff},
      .vm_start = 0x4000,
      .vm_end = 1ull << 39,
      .vm_kernel_min_size = 0x20000000,
      .max_commands_per_submission = 64,
      .max_attachments = 16,
      .command_timestamp_frequency_hz = 24000000,
   };
   memcpy((void *)(uintptr_t)get->pointer, &params, get->size < sizeof params ? get->size : sizeof params);
   return 0;
}

static int create_vm(int fd, unsigned long request, void *arg)
{
   ((struct drm_asahi_vm_create *)arg)->vm_id = 1;
   return 0;
}

static int create_queue(int fd, unsigned long request, void *arg)
{
   ((struct drm_asahi_queue_create *)arg)->queue_id = 1;
   return 0;
}

static int create_buffer(int fd, unsigned long request, void *arg)
{
   struct drm_asahi_gem_create *create = arg;
   struct shim_bo *buffer = calloc(1, sizeof *buffer);
   int error = buffer ? drm_shim_bo_init(buffer, create->size) : -ENOMEM;
   if (error) {
      free(buffer);
      return error;
   }
   create->handle = drm_shim_bo_get_handle(drm_shim_fd_lookup(fd), buffer);
   drm_shim_bo_put(buffer);
   return 0;
}

static int map_offset(int fd, unsigned long request, void *arg)
{
   struct drm_asahi_gem_mmap_offset *map = arg;
   struct shim_fd *shim_fd = drm_shim_fd_lookup(fd);
   struct shim_bo *buffer = drm_shim_bo_lookup(shim_fd, map->handle);
   if (!buffer)
      return -ENOENT;
   map->offset = drm_shim_bo_get_mmap_offset(shim_fd, buffer);
   drm_shim_bo_put(buffer);
   return 0;
}

static ioctl_fn_t ioctls[] = {
   [DRM_ASAHI_GET_PARAMS] = get_params,
   [DRM_ASAHI_GET_TIME] = does_nothing,
   [DRM_ASAHI_VM_CREATE] = create_vm,
   [DRM_ASAHI_VM_DESTROY] = does_nothing,
   [DRM_ASAHI_VM_BIND] = does_nothing,
   [DRM_ASAHI_GEM_CREATE] = create_buffer,
   [DRM_ASAHI_GEM_MMAP_OFFSET] = map_offset,
   [DRM_ASAHI_GEM_BIND_OBJECT] = does_nothing,
   [DRM_ASAHI_QUEUE_CREATE] = create_queue,
   [DRM_ASAHI_QUEUE_DESTROY] = does_nothing,
   [DRM_ASAHI_SUBMIT] = does_nothing,
};

void drm_shim_driver_init(void)
{
   shim_device.bus_type = DRM_BUS_PLATFORM;
   shim_device.driver_name = "asahi";
   shim_device.driver_ioctls = ioctls;
   shim_device.driver_ioctl_count = ARRAY_SIZE(ioctls);
   drm_shim_override_file("DRIVER=asahi\nOF_FULLNAME=/soc/agx\nOF_COMPATIBLE_0=apple,gpu-g13g\nOF_COMPATIBLE_N=1\n",
                          "/sys/dev/char/%d:%d/device/uevent", DRM_MAJOR, render_node_minor);
}
