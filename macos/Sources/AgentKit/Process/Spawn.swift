// Starting a process, as both systems do it.
//
// Owns the call of `posix_spawn`: three descriptors and no others, a group of its own, no signal
// blocked or ignored. Must not know why.

import Foundation

enum Spawn {
  /// Starts it; `descriptors` become 0, 1 and 2.
  static func start(_ command: Command, _ descriptors: [Descriptor]) throws -> pid_t {
    let path = try command.path()
    #if os(Linux)
      var actions = posix_spawn_file_actions_t()
      var attributes = posix_spawnattr_t()
    #else
      var actions: posix_spawn_file_actions_t?
      var attributes: posix_spawnattr_t?
    #endif
    posix_spawn_file_actions_init(&actions)
    posix_spawnattr_init(&attributes)
    defer {
      posix_spawn_file_actions_destroy(&actions)
      posix_spawnattr_destroy(&attributes)
    }
    for (number, descriptor) in descriptors.enumerated() {
      posix_spawn_file_actions_adddup2(&actions, descriptor.number, Int32(number))
    }
    if let directory = command.directory {
      posix_spawn_file_actions_addchdir_np(&actions, directory)
    }
    var flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK
    #if os(Linux)
      posix_spawn_file_actions_addclosefrom_np(&actions, 3)
    #else
      flags |= POSIX_SPAWN_CLOEXEC_DEFAULT
    #endif
    var all = sigset_t()
    sigfillset(&all)
    // These two can't be set.
    sigdelset(&all, SIGKILL)
    sigdelset(&all, SIGSTOP)
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigdefault(&attributes, &all)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setpgroup(&attributes, 0)
    posix_spawnattr_setflags(&attributes, Int16(flags))

    let environment = command.resolvedEnvironment.map { "\($0.key)=\($0.value)" }
    var pid: pid_t = 0
    let result = withStrings([path] + command.arguments) { arguments in
      withStrings(environment) { variables in
        posix_spawn(&pid, path, &actions, &attributes, arguments, variables)
      }
    }
    guard result == 0 else {
      throw AgentError.notStarted("cannot start `\(path)`: \(String(cString: strerror(result)))")
    }
    return pid
  }

  private static func withStrings<Result>(
    _ strings: [String], _ use: ([UnsafeMutablePointer<CChar>?]) -> Result
  ) -> Result {
    let copies = strings.map { strdup($0) }
    defer {
      for copy in copies { free(copy) }
    }
    return use(copies + [nil])
  }
}
