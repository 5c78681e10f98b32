// swift-tools-version:5.9
// The runtime for Swift: the C interface as a module, and a thin wrapper. Put libdrift.a, built for the platform, into
// Libraries/, and the header into Sources/CDrift/include (docs/MOBILE.md says how).
import PackageDescription

let package = Package(
    name: "Drift",
    platforms: [.iOS(.v16), .macOS(.v13)],
    products: [.library(name: "Drift", targets: ["Drift"])],
    targets: [
        .systemLibrary(name: "CDrift"),
        .target(name: "Drift", dependencies: ["CDrift"], linkerSettings: [.unsafeFlags(["-LLibraries"])]),
    ]
)
