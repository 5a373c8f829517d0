// Files as Go programs use them: `os_calls DIR` runs each test in a new directory below DIR; exit code 1 if one fails.
// It needs nothing but the standard library, and must pass on ext4 as on Stria.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

var tests = []struct {
	name string
	run  func(dir string) error
}{
	{"files", files},
	{"walk", walk},
	{"temporary", temporary},
	{"renameLoops", renameLoops},
	{"readersDuringReplacement", readersDuringReplacement},
	{"locks", locks},
	{"lockedCounter", lockedCounter},
	{"mapped", mapped},
	{"manyGoroutines", manyGoroutines},
	{"copies", copies},
	{"times", times},
	{"runs", runs},
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "count" {
		check(count(os.Args[2], os.Args[3]))
		return
	}
	failed := 0
	for _, t := range tests {
		dir := filepath.Join(os.Args[1], "go-"+t.name)
		check(os.Mkdir(dir, 0o755))
		if err := t.run(dir); err != nil {
			failed++
			fmt.Printf("FAILED %s: %v\n", t.name, err)
		} else {
			fmt.Printf("ok %s\n", t.name)
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func want(is bool, what string, args ...any) error {
	if is {
		return nil
	}
	return fmt.Errorf(what, args...)
}

// first gives the first error of several.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func files(dir string) error {
	path := filepath.Join(dir, "f")
	data := bytes.Repeat([]byte("0123456789"), 30_000)
	err := os.WriteFile(path, data, 0o640)
	got, readErr := os.ReadFile(path)
	_, again := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	_, none := os.Open(filepath.Join(dir, "none"))
	_, below := os.Stat(filepath.Join(path, "below"))
	err = first(err, readErr,
		want(bytes.Equal(got, data), "other bytes are read than were written"),
		want(errors.Is(again, fs.ErrExist), "O_EXCL: %v", again),
		want(errors.Is(none, fs.ErrNotExist), "open of nothing: %v", none),
		want(errors.Is(below, syscall.ENOTDIR), "below a file: %v", below))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("tail")
	end, seekErr := f.Seek(-4, io.SeekEnd)
	rest, restErr := io.ReadAll(f)
	part := make([]byte, 10)
	n, atErr := f.ReadAt(part, 299_994)
	return first(err, seekErr, restErr, atErr, f.Truncate(5), f.Sync(),
		want(end == 300_000 && string(rest) == "tail", "the tail is %q at %d", rest, end),
		want(n == 10, "ReadAt gave %d bytes", n))
}

func walk(dir string) error {
	made := 0
	for a := 0; a < 10; a++ {
		for b := 0; b < 10; b++ {
			sub := filepath.Join(dir, fmt.Sprint("a", a), fmt.Sprint("b", b))
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
			for c := 0; c < 5; c++ {
				if err := os.WriteFile(filepath.Join(sub, fmt.Sprint("c", c)), make([]byte, c), 0o644); err != nil {
					return err
				}
				made++
			}
		}
	}
	found, size := 0, int64(0)
	err := filepath.Walk(dir, func(path string, info fs.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			found++
			size += info.Size()
		}
		return err
	})
	fromFS, globErr := fs.Glob(os.DirFS(dir), "a*/b3/c?")
	err = first(err, globErr,
		want(found == made && size == 100*10, "%d files of %d bytes found", found, size),
		want(len(fromFS) == 50, "glob finds %d", len(fromFS)),
		os.RemoveAll(filepath.Join(dir, "a4")))
	left, readErr := os.ReadDir(dir)
	return first(err, readErr, want(len(left) == 9, "%d directories are left", len(left)))
}

func temporary(dir string) error {
	var all sync.Map
	errs := parallel(8, func(w int) error {
		for n := 0; n < 50; n++ {
			f, err := os.CreateTemp(dir, "t-*.tmp")
			if err != nil {
				return err
			}
			if _, twice := all.LoadOrStore(f.Name(), w); twice {
				return fmt.Errorf("%s was given out twice", f.Name())
			}
			_, err = f.WriteString(f.Name())
			if err = first(err, f.Close()); err != nil {
				return err
			}
			text, err := os.ReadFile(f.Name())
			if err = first(err, want(string(text) == f.Name(), "%s holds %q", f.Name(), text)); err != nil {
				return err
			}
		}
		_, err := os.MkdirTemp(dir, "d-*")
		return err
	})
	entries, err := os.ReadDir(dir)
	return first(errs, err, want(len(entries) == 8*51, "%d entries", len(entries)))
}

// renameLoops moves files round in a ring: none is ever lost or doubled.
func renameLoops(dir string) error {
	return first(parallel(4, func(w int) error {
		ring := filepath.Join(dir, fmt.Sprint("ring", w))
		for n := 0; n < 8; n++ {
			sub := filepath.Join(ring, fmt.Sprint(n))
			if err := first(os.MkdirAll(sub, 0o755), os.WriteFile(filepath.Join(sub, "f"), []byte{byte(n)}, 0o644)); err != nil {
				return err
			}
		}
		for n := 0; n < 400; n++ {
			from, to := filepath.Join(ring, fmt.Sprint(n%8)), filepath.Join(ring, "moving")
			next := filepath.Join(ring, fmt.Sprint((n+1)%8))
			if err := first(os.Rename(from, to), os.Rename(next, from), os.Rename(to, next)); err != nil {
				return err
			}
		}
		seen := map[byte]bool{}
		for n := 0; n < 8; n++ {
			data, err := os.ReadFile(filepath.Join(ring, fmt.Sprint(n), "f"))
			if err != nil {
				return err
			}
			seen[data[0]] = true
		}
		return want(len(seen) == 8, "%d of 8 are left", len(seen))
	}))
}

func readersDuringReplacement(dir string) error {
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte{0}, 50_000), 0o644); err != nil {
		return err
	}
	done := make(chan struct{})
	var reads [3]int
	var readers sync.WaitGroup
	var readErr [3]error
	for r := range reads {
		readers.Add(1)
		go func(r int) {
			defer readers.Done()
			for {
				data, err := os.ReadFile(path)
				if err == nil && (len(data) != 50_000 || bytes.Count(data, data[:1]) != 50_000) {
					err = fmt.Errorf("half a file: %d bytes", len(data))
				}
				if err != nil {
					readErr[r] = err
					return
				}
				reads[r]++
				select {
				case <-done:
					return
				default:
				}
			}
		}(r)
	}
	var err error
	for n := 1; n <= 200 && err == nil; n++ {
		next := filepath.Join(dir, "next")
		err = first(os.WriteFile(next, bytes.Repeat([]byte{byte(n)}, 50_000), 0o644), os.Rename(next, path))
	}
	close(done)
	readers.Wait()
	return first(err, first(readErr[:]...), want(reads[0] > 0, "nothing was read"))
}

func locks(dir string) error {
	path := filepath.Join(dir, "f")
	a, err := os.Create(path)
	if err != nil {
		return err
	}
	b, err := os.Open(path)
	if err != nil {
		return err
	}
	err = first(syscall.Flock(int(a.Fd()), syscall.LOCK_EX))
	busy := syscall.Flock(int(b.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	// Who waits is let in when the lock is given back.
	got := make(chan error)
	go func() { got <- syscall.Flock(int(b.Fd()), syscall.LOCK_EX) }()
	select {
	case early := <-got:
		return fmt.Errorf("a second exclusive lock was given: %v", early)
	case <-time.After(50 * time.Millisecond):
	}
	err = first(err, want(busy == syscall.EWOULDBLOCK, "a second lock: %v", busy), syscall.Flock(int(a.Fd()), syscall.LOCK_UN), <-got)
	whole := syscall.Flock_t{Type: syscall.F_WRLCK}
	return first(err, syscall.FcntlFlock(a.Fd(), syscall.F_SETLK, &whole), a.Close(), b.Close())
}

// lockedCounter lets processes, not goroutines, count under fcntl locks: the locks of a process do not exclude each other.
func lockedCounter(dir string) error {
	path := filepath.Join(dir, "count")
	if err := os.WriteFile(path, []byte("0"), 0o644); err != nil {
		return err
	}
	err := parallel(4, func(int) error {
		out, err := exec.Command("/proc/self/exe", "count", path, "60").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
	text, readErr := os.ReadFile(path)
	return first(err, readErr, want(string(text) == "240", "the count is %s", text))
}

func count(path, times string) error {
	var rounds int
	fmt.Sscan(times, &rounds)
	for ; rounds > 0; rounds-- {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		lock := syscall.Flock_t{Type: syscall.F_WRLCK}
		for err = syscall.EINTR; err == syscall.EINTR; {
			err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLKW, &lock)
		}
		if err != nil {
			return err
		}
		var n int
		if _, err := fmt.Fscan(bufio.NewReader(f), &n); err != nil {
			return err
		}
		if _, err := f.WriteAt([]byte(fmt.Sprint(n+1)), 0); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

func mapped(dir string) error {
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(1 << 20); err != nil {
		return err
	}
	m, err := syscall.Mmap(int(f.Fd()), 0, 1<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(m[500_000:], "through the mapping")
	got := make([]byte, 19)
	_, readErr := f.ReadAt(got, 500_000)
	_, writeErr := f.WriteAt([]byte("through write"), 700_000)
	seen := string(m[700_000:700_013])
	return first(readErr, writeErr, want(string(got) == "through the mapping", "read %q", got), want(seen == "through write", "mapped %q", seen), syscall.Munmap(m))
}

func manyGoroutines(dir string) error {
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		return err
	}
	defer f.Close()
	const block = 10_007
	err = parallel(16, func(w int) error {
		for n := w; n < 320; n += 16 {
			if _, err := f.WriteAt(bytes.Repeat([]byte{byte(n)}, block), int64(n*block)); err != nil {
				return err
			}
		}
		return nil
	})
	data, readErr := os.ReadFile(f.Name())
	if err = first(err, readErr, want(len(data) == 320*block, "%d bytes", len(data))); err != nil {
		return err
	}
	for n := 0; n < 320; n++ {
		part := data[n*block : (n+1)*block]
		if bytes.Count(part, []byte{byte(n)}) != block {
			return fmt.Errorf("block %d is not what was written", n)
		}
	}
	return nil
}

// copies uses io.Copy between files, which Go turns into copy_file_range.
func copies(dir string) error {
	data := make([]byte, 5_000_011)
	rand.New(rand.NewSource(7)).Read(data)
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, data, 0o644); err != nil {
		return err
	}
	a, err := os.Open(from)
	b, createErr := os.Create(to)
	if err = first(err, createErr); err != nil {
		return err
	}
	n, err := io.Copy(b, a)
	got, readErr := os.ReadFile(to)
	return first(err, readErr, a.Close(), b.Close(), want(n == int64(len(data)) && bytes.Equal(got, data), "the copy differs"))
}

func times(dir string) error {
	path := filepath.Join(dir, "f")
	at := time.Date(1999, 12, 31, 23, 59, 59, 123_456_789, time.UTC)
	err := first(os.WriteFile(path, nil, 0o644), os.Chtimes(path, at, at))
	info, statErr := os.Stat(path)
	if err = first(err, statErr, want(err == nil && info.ModTime().Equal(at), "the time is not %v", at)); err != nil {
		return err
	}
	err = first(os.WriteFile(path, []byte("x"), 0o644), os.Chmod(path, 0o600))
	info, statErr = os.Stat(path)
	return first(err, statErr, want(info.ModTime().After(at) && info.Mode() == 0o600, "%v %v", info.ModTime(), info.Mode()))
}

// runs puts a program on the file system and runs it there, while nobody may write it.
func runs(dir string) error {
	path := filepath.Join(dir, "true")
	data, err := os.ReadFile("/proc/self/exe")
	if err = first(err, os.WriteFile(path, data, 0o755)); err != nil {
		return err
	}
	text := filepath.Join(dir, "n")
	if err := os.WriteFile(text, []byte("1"), 0o644); err != nil {
		return err
	}
	out, err := exec.Command(path, "count", text, "3").CombinedOutput()
	script := filepath.Join(dir, "script")
	err = first(err, os.WriteFile(script, []byte("#!/bin/sh\necho from the script\n"), 0o755), want(len(out) == 0, "%s", out))
	said, runErr := exec.Command(script).Output()
	n, readErr := os.ReadFile(text)
	return first(err, runErr, readErr, want(string(n) == "4", "the count is %s", n), want(strings.TrimSpace(string(said)) == "from the script", "%s", said))
}

func parallel(workers int, work func(w int) error) error {
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := 0; w < workers; w++ {
		all.Add(1)
		go func(w int) {
			defer all.Done()
			errs[w] = work(w)
		}(w)
	}
	all.Wait()
	return first(errs...)
}
