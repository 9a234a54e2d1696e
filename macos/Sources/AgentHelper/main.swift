// The menu-bar app. Elsewhere than on a Mac it only says so.

#if canImport(SwiftUI) && canImport(AppKit)
  HelperApp.main()
#else
  import Foundation

  FileHandle.standardError.write(Data("AgentHelper needs macOS\n".utf8))
  exit(2)
#endif
