// swift-tools-version:5.9
// The driftc runtime for Swift: the C interface as a module, and a thin wrapper. Put libdrift.a for the platform into Libraries/.
// docs/MOBILE.md has the steps.
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
