/* worker DIR: compiles compute pipelines for `driftc audit` with the first Vulkan device, where driftc itself cannot run: drivers
 * that exist for another processor run in an emulator. DIR/N.spv is the SPIR-V module of pipeline N, DIR/N.txt its entry point,
 * required subgroup size (0: none), whether subgroups are full, and a letter for each binding: s for a storage buffer, u for
 * a uniform buffer, t for a texel buffer, i for a sampled image, o for a storage image.
 *
 * Requests are lines of standard input, {"pipeline":N,"texts":BOOL}; answers are the lines of JSON that driftc's own child
 * processes write. A crash ends the process. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vulkan/vulkan.h>

#define MAX_BINDINGS 64
#define MAX_EXECUTABLES 8
#define MAX_STATISTICS 64

static VkDevice device;
static bool has_statistics;
static PFN_vkGetPipelineExecutablePropertiesKHR get_executables;
static PFN_vkGetPipelineExecutableStatisticsKHR get_statistics;
static PFN_vkGetPipelineExecutableInternalRepresentationsKHR get_texts;

static void print_string(const char *text)
{
   putchar('"');
   for (; *text; text++) {
      unsigned char c = *text;
      if (c == '"' || c == '\\')
         printf("\\%c", c);
      else if (c < 32 || c > 126)
         printf("\\u%04x", c);
      else
         putchar(c);
   }
   putchar('"');
}

/* Answers {"KIND":{"message":"WHAT: CODE"}}. */
static void answer_failure(const char *kind, const char *what, int code)
{
   printf("{\"%s\":{\"message\":\"%s: %d\"}}\n", kind, what, code);
   fflush(stdout);
}

static void refuse(const char *what, int code)
{
   answer_failure("Refused", what, code);
   exit(1);
}

/* Opens the first device with all features that compute shaders of driftc may need, and answers with its name. */
static void open_device(void)
{
   VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_3};
   VkInstanceCreateInfo create_instance = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
   VkInstance instance;
   VkResult result = vkCreateInstance(&create_instance, NULL, &instance);
   if (result)
      refuse("vkCreateInstance", result);
   VkPhysicalDevice physical;
   uint32_t count = 1;
   result = vkEnumeratePhysicalDevices(instance, &count, &physical);
   if (result < 0 || count == 0)
      refuse("vkEnumeratePhysicalDevices", result);
   VkPhysicalDeviceDriverProperties driver = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
   VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &driver};
   vkGetPhysicalDeviceProperties2(physical, &properties);

   VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR};
   const char *extension = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
   uint32_t extensions = 0;
   vkEnumerateDeviceExtensionProperties(physical, NULL, &extensions, NULL);
   VkExtensionProperties *known = calloc(extensions, sizeof *known);
   vkEnumerateDeviceExtensionProperties(physical, NULL, &extensions, known);
   for (uint32_t i = 0; i < extensions; i++)
      has_statistics |= !strcmp(known[i].extensionName, extension);
   free(known);
   VkPhysicalDeviceVulkan13Features v13 = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, has_statistics ? &executables : NULL};
   VkPhysicalDeviceVulkan12Features v12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, &v13};
   VkPhysicalDeviceVulkan11Features v11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &v12};
   VkPhysicalDeviceFeatures2 features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &v11};
   vkGetPhysicalDeviceFeatures2(physical, &features);
   /* Without robust access, as in driftc's runtime. */
   features.features.robustBufferAccess = false;
   v11.protectedMemory = false;
   v12.bufferDeviceAddressCaptureReplay = v12.bufferDeviceAddressMultiDevice = false;
   has_statistics = has_statistics && executables.pipelineExecutableInfo;

   VkQueueFamilyProperties families[16];
   uint32_t family_count = 16, family = 0;
   vkGetPhysicalDeviceQueueFamilyProperties(physical, &family_count, families);
   while (family < family_count && !(families[family].queueFlags & VK_QUEUE_COMPUTE_BIT))
      family++;
   float priority = 1;
   VkDeviceQueueCreateInfo queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
      .queueFamilyIndex = family, .queueCount = 1, .pQueuePriorities = &priority};
   VkDeviceCreateInfo create = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features,
      .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue,
      .enabledExtensionCount = has_statistics, .ppEnabledExtensionNames = &extension};
   result = vkCreateDevice(physical, &create, NULL, &device);
   if (result)
      refuse("vkCreateDevice", result);
   get_executables = (void *)vkGetDeviceProcAddr(device, "vkGetPipelineExecutablePropertiesKHR");
   get_statistics = (void *)vkGetDeviceProcAddr(device, "vkGetPipelineExecutableStatisticsKHR");
   get_texts = (void *)vkGetDeviceProcAddr(device, "vkGetPipelineExecutableInternalRepresentationsKHR");

   printf("{\"Device\":{\"name\":");
   print_string(properties.properties.deviceName);
   printf(",\"driver\":");
   print_string(driver.driverName);
   printf(",\"driver_info\":");
   print_string(driver.driverInfo);
   printf(",\"statistics\":%s}}\n", has_statistics ? "true" : "false");
   fflush(stdout);
}

static VkDescriptorType descriptor_type(char letter)
{
   switch (letter) {
   case 'u': return VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
   case 't': return VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER;
   case 'i': return VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE;
   case 'o': return VK_DESCRIPTOR_TYPE_STORAGE_IMAGE;
   default: return VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
   }
}

/* Returns the layout of a pipeline with one descriptor set. */
static VkPipelineLayout pipeline_layout(const char *letters)
{
   VkDescriptorSetLayoutBinding bindings[MAX_BINDINGS];
   uint32_t count = 0;
   for (; letters[count] && count < MAX_BINDINGS; count++)
      bindings[count] = (VkDescriptorSetLayoutBinding){
         count, descriptor_type(letters[count]), 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL};
   VkDescriptorSetLayoutCreateInfo create_set = {VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
      .bindingCount = count, .pBindings = bindings};
   VkDescriptorSetLayout set = VK_NULL_HANDLE;
   VkPipelineLayout layout = VK_NULL_HANDLE;
   if (vkCreateDescriptorSetLayout(device, &create_set, NULL, &set))
      return layout;
   VkPipelineLayoutCreateInfo create = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
      .setLayoutCount = 1, .pSetLayouts = &set};
   vkCreatePipelineLayout(device, &create, NULL, &layout);
   return layout;
}

static double value(const VkPipelineExecutableStatisticKHR *statistic)
{
   switch (statistic->format) {
   case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: return statistic->value.b32;
   case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: return statistic->value.i64;
   case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR: return statistic->value.u64;
   default: return statistic->value.f64;
   }
}

static void print_texts(VkPipelineExecutableInfoKHR *which, bool *first)
{
   uint32_t count = 0;
   if (get_texts(device, which, &count, NULL) || count == 0)
      return;
   VkPipelineExecutableInternalRepresentationKHR *texts = calloc(count, sizeof *texts);
   for (uint32_t i = 0; i < count; i++)
      texts[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
   get_texts(device, which, &count, texts);
   for (uint32_t i = 0; i < count; i++)
      texts[i].pData = calloc(1, texts[i].dataSize + 1);
   get_texts(device, which, &count, texts);
   for (uint32_t i = 0; i < count; i++) {
      if (texts[i].isText) {
         printf("%s[", *first ? "" : ",");
         *first = false;
         print_string(texts[i].name);
         putchar(',');
         print_string(texts[i].pData);
         putchar(']');
      }
      free(texts[i].pData);
   }
   free(texts);
}

/* Answers with the time to compile, and with what the driver reports about the pipeline. */
static void answer_compiled(VkPipeline pipeline, double compile_ms, bool with_texts)
{
   VkPipelineExecutablePropertiesKHR executables[MAX_EXECUTABLES];
   uint32_t count = has_statistics ? MAX_EXECUTABLES : 0;
   for (uint32_t i = 0; i < MAX_EXECUTABLES; i++)
      executables[i] = (VkPipelineExecutablePropertiesKHR){VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
   VkPipelineInfoKHR info = {VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline};
   if (has_statistics && get_executables(device, &info, &count, executables) < 0)
      count = 0;
   printf("{\"Compiled\":{\"compile_ms\":%f,\"subgroup_size\":%u,\"statistics\":[", compile_ms,
      count ? executables[0].subgroupSize : 0);
   bool first = true;
   for (uint32_t e = 0; e < count; e++) {
      VkPipelineExecutableStatisticKHR statistics[MAX_STATISTICS];
      uint32_t n = MAX_STATISTICS;
      for (uint32_t i = 0; i < MAX_STATISTICS; i++)
         statistics[i] = (VkPipelineExecutableStatisticKHR){VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
      VkPipelineExecutableInfoKHR which = {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, NULL, pipeline, e};
      if (get_statistics(device, &which, &n, statistics) < 0)
         n = 0;
      for (uint32_t i = 0; i < n; i++, first = false) {
         printf("%s[", first ? "" : ",");
         print_string(statistics[i].name);
         printf(",%f]", value(&statistics[i]));
      }
   }
   printf("],\"texts\":[");
   first = true;
   for (uint32_t e = 0; with_texts && e < count; e++) {
      VkPipelineExecutableInfoKHR which = {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, NULL, pipeline, e};
      print_texts(&which, &first);
   }
   printf("]}}\n");
   fflush(stdout);
}

static double milliseconds(void)
{
   struct timespec now;
   clock_gettime(CLOCK_MONOTONIC, &now);
   return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

static void compile(const char *folder, unsigned pipeline, bool with_texts)
{
   static uint32_t words[1 << 20];
   char path[4096], entry[128], letters[MAX_BINDINGS + 2];
   unsigned subgroup, full;
   snprintf(path, sizeof path, "%s/%u.txt", folder, pipeline);
   FILE *file = fopen(path, "r");
   int fields = file ? fscanf(file, "%127s %u %u %65s", entry, &subgroup, &full, letters) : 0;
   if (file)
      fclose(file);
   snprintf(path, sizeof path, "%s/%u.spv", folder, pipeline);
   file = fopen(path, "rb");
   size_t size = file ? fread(words, 4, sizeof words / 4, file) : 0;
   if (file)
      fclose(file);
   if (fields != 4 || size == 0) {
      answer_failure("Failed", "there is no such pipeline", 0);
      return;
   }
   VkShaderModuleCreateInfo create_module = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
      .codeSize = size * 4, .pCode = words};
   VkShaderModule module;
   VkResult result = vkCreateShaderModule(device, &create_module, NULL, &module);
   if (result) {
      answer_failure("Failed", "vkCreateShaderModule", result);
      return;
   }
   VkPipelineShaderStageRequiredSubgroupSizeCreateInfo required = {
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, .requiredSubgroupSize = subgroup};
   VkComputePipelineCreateInfo create = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .flags = (has_statistics ? VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR : 0) |
               (has_statistics && with_texts ? VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR : 0),
      .stage = {VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO, subgroup ? &required : NULL,
         full ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0, VK_SHADER_STAGE_COMPUTE_BIT, module,
         entry},
      .layout = pipeline_layout(letters)};
   VkPipeline created;
   double start = milliseconds();
   result = vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &create, NULL, &created);
   double end = milliseconds();
   vkDestroyShaderModule(device, module, NULL);
   if (result) {
      answer_failure("Failed", "vkCreateComputePipelines", result);
      return;
   }
   answer_compiled(created, end - start, with_texts);
   vkDestroyPipeline(device, created, NULL);
}

int main(int count, char **arguments)
{
   if (count != 2) {
      fprintf(stderr, "worker: the argument is the folder with the pipelines\n");
      return 2;
   }
   open_device();
   char line[256], texts[8];
   unsigned pipeline;
   while (fgets(line, sizeof line, stdin)) {
      if (sscanf(line, "{\"pipeline\":%u,\"texts\":%7[a-z]", &pipeline, texts) == 2)
         compile(arguments[1], pipeline, !strcmp(texts, "true"));
      else
         answer_failure("Failed", "the request is not understood", 0);
   }
   return 0;
}
