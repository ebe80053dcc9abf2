// Command generate writes what front ends need of the options, the metrics and the errors at compile time, from the table in package
// option, engine/metrics.go and package fault. Its argument is the repository's root.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/morphseek/morphseek/engine/internal/option"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give the repository's root")
	}
	changed, err := generate(args[0], option.Table)
	if err != nil {
		return err
	}
	for path, text := range changed {
		if err := os.WriteFile(filepath.Join(args[0], path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
