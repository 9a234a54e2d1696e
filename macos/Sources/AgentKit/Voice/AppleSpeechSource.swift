// Apple's recogniser as a source of transcripts. Not run on a Mac yet.
//
// Owns the microphone and the recogniser. Must not know who forwards what it hears.

#if canImport(Speech) && canImport(AVFoundation)
  import AVFoundation
  import Speech

  /// Listens until nobody reads, for one reader. What follows a wake phrase counts once nothing new
  /// was heard for `silence` seconds. Where speech can't be recognised on this machine it ends at
  /// once: nothing that is said leaves it.
  public final class AppleSpeechSource: SpeechSource, @unchecked Sendable {
    private let wakeWords: WakeWords
    private let silence: Double
    private let engine = AVAudioEngine()
    private let recognizer = SFSpeechRecognizer()
    private let queue = DispatchQueue(label: "agentkit-speech")
    private var request: SFSpeechAudioBufferRecognitionRequest?
    private var task: SFSpeechRecognitionTask?
    private var pending: DispatchWorkItem?
    private var recognitions = Recognitions()

    public init(wakeWords: WakeWords, silence: Double = 1.5) {
      self.wakeWords = wakeWords
      self.silence = silence
    }

    public func transcripts() -> AsyncStream<Transcript> {
      let (stream, continuation) = AsyncStream.makeStream(of: Transcript.self)
      continuation.onTermination = { [self] _ in
        queue.async {
          self.recognitions.finish()
          self.stop()
        }
      }
      SFSpeechRecognizer.requestAuthorization { [self] status in
        let isAllowed = status == .authorized
        queue.async {
          guard isAllowed, self.listen(continuation) else {
            continuation.finish()
            return
          }
        }
      }
      return stream
    }

    private func listen(_ continuation: AsyncStream<Transcript>.Continuation) -> Bool {
      guard let recognizer, recognizer.isAvailable, recognizer.supportsOnDeviceRecognition,
        let number = recognitions.begin()
      else { return false }
      let input = engine.inputNode
      let format = input.outputFormat(forBus: 0)
      // A machine without a microphone has a format of nothing.
      guard format.sampleRate > 0, format.channelCount > 0 else { return false }
      let request = SFSpeechAudioBufferRecognitionRequest()
      request.shouldReportPartialResults = true
      request.requiresOnDeviceRecognition = true
      self.request = request
      input.installTap(onBus: 0, bufferSize: 2048, format: format) { buffer, _ in
        request.append(buffer)
      }
      task = recognizer.recognitionTask(with: request) { [self] result, error in
        let heard = result?.bestTranscription.formattedString
        let isOver = error != nil || result?.isFinal == true
        queue.async {
          // The one that was stopped says so by an error: that begins nothing.
          guard self.recognitions.counts(number) else { return }
          self.heard(heard, isOver: isOver, continuation)
        }
      }
      engine.prepare()
      return (try? engine.start()) != nil
    }

    private func heard(
      _ text: String?, isOver: Bool, _ continuation: AsyncStream<Transcript>.Continuation
    ) {
      pending?.cancel()
      let command = text.flatMap { wakeWords.command(in: $0) }
      let next = DispatchWorkItem { [self] in
        if let command { continuation.yield(Transcript(text: command)) }
        // A fresh recognition, so that nothing is heard twice.
        stop()
        if !listen(continuation) { continuation.finish() }
      }
      guard command != nil || isOver else { return }
      pending = next
      // One that ends at once, again and again, doesn't keep the machine busy.
      queue.asyncAfter(deadline: .now() + silence, execute: next)
    }

    private func stop() {
      recognitions.stop()
      pending?.cancel()
      task?.cancel()
      request?.endAudio()
      engine.inputNode.removeTap(onBus: 0)
      engine.stop()
      task = nil
      request = nil
    }
  }
#endif
