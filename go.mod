module github.com/morphseek/morphseek

go 1.25.0

require (
	github.com/go-python/gopy v0.4.10
	github.com/kelindar/binary v1.0.19
	github.com/yalue/onnxruntime_go v1.27.0
	golang.org/x/sys v0.43.0
	gonum.org/v1/gonum v0.17.0
)

require (
	github.com/gonuts/commander v0.1.0 // indirect
	github.com/gonuts/flag v0.1.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	golang.org/x/mod v0.35.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
	golang.org/x/telemetry v0.0.0-20260409153401-be6f6cb8b1fa // indirect
	golang.org/x/tools v0.44.0 // indirect
)

tool (
	github.com/go-python/gopy
	golang.org/x/tools/cmd/goimports
)
