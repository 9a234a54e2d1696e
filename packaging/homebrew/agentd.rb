# The formula of agentd. `cargo xtask dist --url URL` writes it out with the address and the sum of
# a release. Not run on a Mac yet.
class Agentd < Formula
  desc "Per-user daemon that every program on a machine uses to talk to AI agents"
  homepage "https://agentd.example"
  url "https://agentd.example/agentd-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args
    %w[agentctl agentd timmy].each do |name|
      generate_completions_from_executable(bin/name, "completions")
    end
    system bin/"agentctl", "man", "--to", man1
    doc.install "CHANGELOG.md", "client/PROTOCOL.md"
  end

  # `agentctl service install` does the same and more: launchd then holds the socket, so that
  # nobody is refused while the daemon restarts.
  service do
    run opt_bin/"agentd"
    keep_alive successful_exit: false
    process_type :background
    environment_variables PATH: std_service_path_env, AGENTD_SERVICE: "launchd"
    log_path var/"log/agentd.log"
    error_log_path var/"log/agentd.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/agentctl --version")
    ENV["HOME"] = testpath
    ENV["AGENTD_SOCKET"] = testpath/"agentd.sock"
    ENV["AGENTD_STATE_DIR"] = testpath/"state"
    answer = shell_output("#{bin}/agentctl send --agent timmy --provider echo hello")
    assert_match "hello", answer
  end
end
