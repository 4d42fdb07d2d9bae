package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// followPace is how often a file is looked at for more.
const followPace = 50 * time.Millisecond

// followed is a file that a client writes and kl passes on. A client that
// applies writes into files, not into a pipe: the end of kl would close that, and
// end the client with it in the middle of its work, before it has said what it
// has built.
type followed struct {
	file *os.File // for the client
	stop func()   // after the client's end: passes the rest on; may be called again
}

// follow makes a file in the run's directory and passes what comes into it on
// to w.
func (r *inRun) follow(name string, w io.Writer) (*followed, error) {
	path := filepath.Join(r.tmp, name)
	in, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file for the client's output: %w", err)
	}
	out, err := os.Open(path)
	if err != nil {
		_ = in.Close()
		return nil, fmt.Errorf("read the client's output: %w", err)
	}
	ended := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		tick := time.NewTicker(followPace)
		defer tick.Stop()
		for {
			_, _ = io.Copy(w, out) // who cannot be written to does not keep the client from its work
			select {
			case <-tick.C:
			case <-ended:
				_, _ = io.Copy(w, out)
				return
			}
		}
	})
	return &followed{in, sync.OnceFunc(func() {
		close(ended)
		reader.Wait()
		_ = in.Close()
		_ = out.Close()
	})}, nil
}
