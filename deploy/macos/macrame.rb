# Made by deploy/package macos, which fills in where the archive lies, its version and its sum.
class Macrame < Formula
  desc "One cluster of machines that serves language models"
  url "@URL@"
  version "@VERSION@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on arch: :arm64
  depends_on macos: :tahoe

  def install
    odie "ranks need macOS @MACOS@: update this Mac" if MacOS.full_version < "@MACOS@"
    libexec.install "bin", "mlx"
    bin.install_symlink libexec/"bin/agentd", libexec/"bin/clusterctl"
    man1.install "share/man/man1/clusterctl.1"
    bash_completion.install "share/completions/clusterctl.bash" => "clusterctl"
    zsh_completion.install "share/completions/clusterctl.zsh" => "_clusterctl"
    fish_completion.install "share/completions/clusterctl.fish"
    doc.install Dir["share/doc/*"]
  end

  def caveats
    <<~EOS
      The agent becomes a service of this Mac, from files of its own, with
        sudo #{opt_bin}/clusterctl service install
      and stays as it is when this package is upgraded, until that is said again.
    EOS
  end

  test do
    assert_match "agentd", shell_output("#{bin}/agentd --help")
    assert_match "clusterctl", shell_output("#{bin}/clusterctl help")
  end
end
