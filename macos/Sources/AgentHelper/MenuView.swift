// The menu itself. Not run on a Mac yet.
//
// Owns where things stand. Decides nothing.

#if canImport(SwiftUI) && canImport(AppKit)
  import AgentKit
  import AgentViews
  import AppKit
  import SwiftUI

  struct MenuView: View {
    let model: HelperModel
    @State private var startsAtLogin = LoginItem.item.isOn
    /// What couldn't be done.
    @State private var refusal: String?

    var body: some View {
      VStack(alignment: .leading, spacing: 8) {
        Label(model.daemon.title, systemImage: model.daemon.symbol).font(.headline)
        if let problem = model.problem { Text(problem).foregroundStyle(.red) }
        ForEach(model.questions) { QuestionView(model: model, question: $0) }
        section("Workers", model.workers) { worker in
          HStack {
            Text("\(worker.agent): \(worker.state)")
            Spacer()
            Button("Restart") { Task { await model.restart(worker) } }
          }
        }
        section("Sessions", model.sessions) { Text("\($0.title): \($0.state)") }
        section("Recent jobs", model.jobs) { job in
          VStack(alignment: .leading) {
            HStack {
              Text("\(job.id) \(job.state): \(job.preview)").lineLimit(1)
              Spacer()
              if job.canBeAborted { Button("Abort") { Task { await model.abort(job) } } }
            }
            if let running = model.running[job.id] {
              Text(running.text.suffix(200)).font(.caption).foregroundStyle(.secondary)
            }
          }
        }
        Divider()
        // A switch that is bound to a value would be set by its own correction.
        Button(startsAtLogin ? "Don't start at login" : "Start at login, and now") {
          start(!startsAtLogin)
        }
        if let refusal { Text(refusal).font(.caption) }
        HStack {
          Button("Logs") { Logs.open() }
          Spacer()
          Button("Quit") { NSApp.terminate(nil) }
        }
      }
      .padding()
      .frame(width: 380)
    }

    /// What the button says afterwards is what is.
    private func start(_ wanted: Bool) {
      refusal = LoginItem.set(wanted)
      startsAtLogin = LoginItem.item.isOn
    }

    @ViewBuilder
    private func section<Row: Identifiable>(
      _ title: String, _ rows: [Row], @ViewBuilder row: @escaping (Row) -> some View
    ) -> some View {
      if !rows.isEmpty {
        Text(title).font(.subheadline).foregroundStyle(.secondary)
        ForEach(rows) { row($0) }
      }
    }
  }

  struct QuestionView: View {
    let model: HelperModel
    let question: Question
    @State private var text = ""

    var body: some View {
      GroupBox(question.title) {
        if let detail = question.detail {
          // However long it is, all of it can be seen: a yes is for all of it.
          ScrollView {
            Text(detail).font(.caption).frame(maxWidth: .infinity, alignment: .leading)
          }
          .frame(maxHeight: 240)
        }
        switch question.kind {
        case "approval":
          HStack {
            Button("Approve") { Task { await model.answer(question, approve: true) } }
            Button("Deny") { Task { await model.answer(question, approve: false) } }
          }
        case "choice":
          ForEach(question.options, id: \.self) { option in
            Button(option) { Task { await model.answer(question, choice: option) } }
          }
        default:
          HStack {
            if question.kind == "secret" {
              SecureField("", text: $text)
            } else {
              TextField("", text: $text)
            }
            Button("Answer") {
              let said = text
              text = ""
              Task { await model.answer(question, text: said) }
            }
          }
        }
      }
    }
  }
#endif
