/* ProcessPrng, a Windows function that Rust's standard library imports and Wine 8 lacks. For tests under Wine. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return RtlGenRandom(data, (ULONG)size); }
