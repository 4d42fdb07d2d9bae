package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kl/fault"
	"kl/store"
)

// Fields of the log lines about scheduled backups.
const (
	fieldFile  = "file"
	fieldBytes = "bytes"
	fieldTook  = "took"
)

const (
	defaultBackupEvery = 24 * time.Hour
	defaultBackupKeep  = 7
	leastBackupEvery   = time.Minute
	// backupTime is how the moment of a scheduled backup is written in its
	// name, so that names sort by age.
	backupTime = "20060102T150405Z"
	// unfinishedAge is how long nothing was written to a copy that is no more
	// being made.
	unfinishedAge = time.Hour
)

var (
	backupName     = regexp.MustCompile(`^kl-(\d{8}T\d{6}Z)\.db$`)
	unfinishedName = regexp.MustCompile(`^kl-\d{8}T\d{6}Z\.db\.tmp-\d+$`)
)

// schedule says when kl serve makes backups by itself.
type schedule struct {
	dir   string
	every time.Duration
	keep  int
}

func (s *schedule) add(f *pflag.FlagSet) {
	f.StringVar(&s.dir, "backup-dir", "", "directory for backups that the server makes by itself; none without it")
	f.DurationVar(&s.every, "backup-every", defaultBackupEvery, "time between these backups")
	f.IntVar(&s.keep, "backup-keep", defaultBackupKeep, "how many of these backups stay, the newest; 0 for all")
}

func (s *schedule) validate(cmd *cobra.Command) error {
	switch {
	case s.dir == "":
		return nil
	case s.every < leastBackupEvery:
		return usage(cmd, "--backup-every is %s; it can be %s or more", s.every, leastBackupEvery)
	case s.keep < 0:
		return usage(cmd, "--backup-keep must not be negative")
	}
	return nil
}

// scheduleBackups makes backups until stop is called, which waits for one that
// is being made. The first is made at once, unless there is one that is not old
// enough yet.
func (a *app) scheduleBackups(ctx context.Context, st *store.Store, s schedule, log zerolog.Logger) (stop func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.ParameterInvalid, err, "the directory for backups %s cannot be made", s.dir).WithNext("check --backup-dir (KL_BACKUP_DIR)")
	}
	old, err := s.list()
	if err != nil {
		return nil, fault.Wrap(fault.ParameterInvalid, err, "the directory for backups %s cannot be read", s.dir).WithNext("check --backup-dir (KL_BACKUP_DIR)")
	}
	wait := s.wait(old, a.env.Now())
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for next := time.NewTimer(wait); ; next.Reset(s.every) {
			select {
			case <-ctx.Done():
				next.Stop()
				return
			case <-next.C:
				s.once(ctx, st, a.env.Now().UTC(), log)
			}
		}
	})
	return func() { cancel(); done.Wait() }, nil
}

// wait is how long after now the first backup is made. Names from the future, by
// a clock that was wrong, do not put it off.
func (s *schedule) wait(old []made, now time.Time) time.Duration {
	for _, m := range slices.Backward(old) {
		if age := now.Sub(m.at); age >= 0 {
			return max(0, s.every-age)
		}
	}
	return 0
}

// once makes a backup and removes those that are too many. A failure is in the
// log; the next one is made at its time.
func (s *schedule) once(ctx context.Context, st *store.Store, now time.Time, log zerolog.Logger) {
	path := filepath.Join(s.dir, "kl-"+now.Format(backupTime)+".db")
	start := time.Now()
	n, err := st.BackupTo(ctx, path)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		log.Error().Err(err).Str(fieldFile, path).Msg("the backup failed")
		return // what there is stays
	}
	log.Info().Str(fieldFile, path).Int64(fieldBytes, n).Dur(fieldTook, time.Since(start)).Msg("backup made")
	all, err := s.list()
	if i := slices.IndexFunc(all, func(m made) bool { return m.name == filepath.Base(path) }); i >= 0 {
		// names from the future, by a clock that was wrong, go first: this one is the newest
		all = slices.Concat(all[i+1:], all[:i+1])
	}
	for i := 0; err == nil && s.keep > 0 && i < len(all)-s.keep; i++ {
		err = os.Remove(filepath.Join(s.dir, all[i].name))
	}
	if err = errors.Join(err, s.sweep()); err != nil {
		log.Error().Err(err).Str(fieldFile, s.dir).Msg("old backups could not be removed")
	}
}

// sweep removes copies that were never finished, because the server was killed.
// One that still grows, from another server, stays.
func (s *schedule) sweep() error {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if !unfinishedName.MatchString(e.Name()) {
			continue
		}
		if fi, ferr := e.Info(); ferr == nil && time.Since(fi.ModTime()) > unfinishedAge {
			err = errors.Join(err, os.Remove(filepath.Join(s.dir, e.Name())))
		}
	}
	return err
}

// made is a backup that the schedule has made.
type made struct {
	name string
	at   time.Time
}

// list finds the schedule's backups, the oldest first. Other files in the
// directory are nobody's business.
func (s *schedule) list() (all []made, err error) {
	entries, err := os.ReadDir(s.dir) // sorted by name, and so by age
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		m := backupName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		at, err := time.Parse(backupTime, m[1])
		if err == nil {
			all = append(all, made{e.Name(), at})
		}
	}
	return slices.Clip(all), nil
}
