// swift-tools-version: 6.0
import PackageDescription

let package = Package(
  name: "AgentKit",
  platforms: [.macOS(.v14)],
  products: [
    .library(name: "AgentKit", targets: ["AgentKit"]),
    .library(name: "AgentViews", targets: ["AgentViews"]),
    .executable(name: "AgentHelper", targets: ["AgentHelper"]),
    .executable(name: "agentkit-figures", targets: ["agentkit-figures"]),
  ],
  targets: [
    .target(name: "AgentKit"),
    .target(name: "AgentViews", dependencies: ["AgentKit"]),
    .executableTarget(name: "AgentHelper", dependencies: ["AgentKit", "AgentViews"]),
    .executableTarget(name: "agentkit-figures", dependencies: ["AgentKit"]),
    .testTarget(name: "AgentKitTests", dependencies: ["AgentKit"]),
    .testTarget(name: "AgentViewsTests", dependencies: ["AgentKit", "AgentViews"]),
  ],
  swiftLanguageModes: [.v6]
)
