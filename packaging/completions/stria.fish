# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_stria_global_optspecs
    string join \n h/help V/version
end

function __fish_stria_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_stria_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_stria_using_subcommand
    set -l cmd (__fish_stria_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c stria -n "__fish_stria_needs_command" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_needs_command" -s V -l version -d 'Print version'
complete -c stria -n "__fish_stria_needs_command" -f -a "up" -d 'Make a file system in a directory (or start the one that is there), serve it and mount it'
complete -c stria -n "__fish_stria_needs_command" -f -a "down" -d 'Stop the cluster in a directory: unmount, stop its servers, wait until they are gone'
complete -c stria -n "__fish_stria_needs_command" -f -a "status" -d 'Show what runs: process, mount, and each target with its state, space, sessions and log. Works on a stopped cluster too'
complete -c stria -n "__fish_stria_needs_command" -f -a "health" -d 'Show whether all is well, and what is not: targets, mirrors, damage, space, logs, slow disks and links, management services. With --hints also the next step for each, and what would make the file system safer'
complete -c stria -n "__fish_stria_needs_command" -f -a "dash" -d 'Serve a page of a file system to browsers on this host: health and the next steps, space, throughput over a week, top lists, mirrors, tasks, damage. It is off unless it is started. It listens on loopback only, and asks for a token'
complete -c stria -n "__fish_stria_needs_command" -f -a "df" -d 'Show space or inodes of each MDT and OST, in the columns of `lfs df`'
complete -c stria -n "__fish_stria_needs_command" -f -a "du" -d 'Show what directories hold in all, as `du -s` does, at once however much that is. A file with several links counts where its first is; symlinks are not followed. What other mounts have written in the last second may be missing'
complete -c stria -n "__fish_stria_needs_command" -f -a "find" -d 'Find files below PATH by tests, as `find` and `lfs find` do. Paths come in no order: several threads search. Only the file system of PATH is searched. Exit code 1 if something could not be read'
complete -c stria -n "__fish_stria_needs_command" -f -a "index" -d 'Keep an index of a file system for `stria find -db`: names, sizes, owners, times and striping in an SQLite file. `stria index run` scans once and then follows the changelog; `stria index status` shows how far it is; `stria index analytics` writes a page of what is there. Each has `--help`'
complete -c stria -n "__fish_stria_needs_command" -f -a "setstripe" -d 'Set the striping of an empty file (made if it does not exist) or of a directory, whose new files inherit it. More stripes than there are OSTs are taken, with a warning'
complete -c stria -n "__fish_stria_needs_command" -f -a "getstripe" -d 'Show the striping of files; of a directory, what new files in it get, and the striping of those in it. A file whose content is still inline shows what it gets when it grows'
complete -c stria -n "__fish_stria_needs_command" -f -a "id2path" -d 'Show the paths of files by their ids (inode numbers). A file with several links has several. Exit code 1 if an id has none'
complete -c stria -n "__fish_stria_needs_command" -f -a "path2id" -d 'Show the ids of files: their inode numbers, as logs, damage lists and `stria id2path` have them. Symlinks are not followed'
complete -c stria -n "__fish_stria_needs_command" -f -a "fsck" -d 'Check a file system, running, or stopped unless it is a pair: names, link counts, sums, lost and leaked objects, sizes. Nothing is written without --repair'
complete -c stria -n "__fish_stria_needs_command" -f -a "damage" -d 'List damaged files (checksum mismatches, missing objects, medium errors), or forget what is known of them'
complete -c stria -n "__fish_stria_needs_command" -f -a "scrub" -d 'Read every page of the OSTs, and all records of the MDTs, from their media and check them, in the background; bad pages are listed by `stria damage list`'
complete -c stria -n "__fish_stria_needs_command" -f -a "task" -d 'Show, pause and resume work in the background: fills of mirrors, drains of OSTs, scrubs, comparisons of mirrors\' members'
complete -c stria -n "__fish_stria_needs_command" -f -a "get-param" -d 'Show values of parameters at running targets and mounts, one TARGET.NAME=VALUE a line'
complete -c stria -n "__fish_stria_needs_command" -f -a "set-param" -d 'Set parameters of targets and mounts. The values hold until the targets\' servers or this mount end; with -P they are kept in the cluster map, and also targets that are down or new take them, and all mounts'
complete -c stria -n "__fish_stria_needs_command" -f -a "list-param" -d 'List the parameters of targets and mounts: their names, values that can be set, and meanings'
complete -c stria -n "__fish_stria_needs_command" -f -a "changelog" -d 'All changes of a file system, in order and without a gap: for backups, indexes, mirrors and policies. Register a consumer, read, and acknowledge the changes that it has processed; the MDT keeps changes until all consumers have acknowledged them'
complete -c stria -n "__fish_stria_needs_command" -f -a "cluster" -d 'Issue, revoke and renew the certificates of a cluster\'s nodes'
complete -c stria -n "__fish_stria_needs_command" -f -a "fs" -d 'List, make and remove the file systems of a management service'
complete -c stria -n "__fish_stria_needs_command" -f -a "target" -d 'Retire an OST, take a target out of a cluster for good, give a mirror another device for a lost one, or look at a superblock'
complete -c stria -n "__fish_stria_needs_command" -f -a "node" -d 'Look at the hosts of a cluster\'s servers, and take one out'
complete -c stria -n "__fish_stria_needs_command" -f -a "mirror" -d 'Show mirrors: groups of targets on different servers with the same content'
complete -c stria -n "__fish_stria_needs_command" -f -a "server" -d 'Move the primaries of mirrors from a server to others, before it is stopped, and back'
complete -c stria -n "__fish_stria_needs_command" -f -a "nodemap" -d 'Ban clients, let them only read or see one directory, squash or map their users: by certificate or address'
complete -c stria -n "__fish_stria_needs_command" -f -a "gateway" -d 'Serve a mounted file system to NFS and SMB clients, by NFS-Ganesha and Samba'
complete -c stria -n "__fish_stria_needs_command" -f -a "bench" -d 'Measure a directory: sequential, random, many small files, fsync, latency. Works on any file system'
complete -c stria -n "__fish_stria_needs_command" -f -a "jobstats" -d 'Show what jobs, users, clients and targets have asked of the servers since these were started: requests, bytes, errors, and the time that the servers took. A job is that of the scheduler (SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, FLUX_JOB_ID or JOB_ID in the program\'s environment), otherwise the program\'s name and user, as tar.1000. A job that is idle for ten minutes goes to (others)'
complete -c stria -n "__fish_stria_needs_command" -f -a "top" -d 'Show what jobs, users, clients, targets or calls ask of the servers now: rates of each interval, until it is interrupted. BUSY is the time that servers work on requests: 300 % are three at once. On a terminal keys choose rows and order; the last line tells them. A pipe gets a table for each interval'
complete -c stria -n "__fish_stria_needs_command" -f -a "why" -d 'Tell the slow part of what a path, a job or a client does now: the program, the network, the queue of a server, its processors, locks of other clients, a log that is full, the other member of a mirror, or a drive. The servers count what each request waits for; this command compares two moments. Meanwhile it looks which files\' leases are waited for, and which clients hold them. A path stands for all requests to its MDT and its OSTs, whichever program makes them'
complete -c stria -n "__fish_stria_needs_command" -f -a "lease" -d 'Look at leases: what clients may cache of files'
complete -c stria -n "__fish_stria_needs_command" -f -a "lfs" -d 'Lustre\'s `lfs`, for scripts and hands that know it: df, find, getstripe, setstripe, fid2path, path2fid, quota and check, with the columns and options that they have there. A link named `lfs` to this program does the same. A file id is one number here. In getstripe\'s table of objects the number of an object is that of its file'
complete -c stria -n "__fish_stria_needs_command" -f -a "mm" -d 'Storage Scale\'s `mmgetstate` and `mmlsfs`, for scripts and hands that know them: the same columns, and with -Y the same lines with colons. The management service is that of --mgs, or of a mount on this host. A node is a host: all server processes of one name, with the lowest of their numbers. It is "active" if all of its processes answer, "down" if one does not, and "unknown" if it has no target or refuses to tell'
complete -c stria -n "__fish_stria_needs_command" -f -a "client" -d 'Look at the clients of a file system, and end one that hangs'
complete -c stria -n "__fish_stria_needs_command" -f -a "waiters" -d 'Show what waits for a lease, for how long, and which clients hold it. Exit code 1 if something waits'
complete -c stria -n "__fish_stria_needs_command" -f -a "mdt" -d 'Look at MDTs closely: what running ones hold, and in memory; what the metadata engine makes of a device; backups'
complete -c stria -n "__fish_stria_needs_command" -f -a "ost" -d 'Look at OSTs closely: what running ones wrote and how their space is used; what the engine makes of a device'
complete -c stria -n "__fish_stria_needs_command" -f -a "net" -d 'Look at nets and connections: which NIDs there are and whether they answer, what went over connections, and each frame as it goes'
complete -c stria -n "__fish_stria_needs_command" -f -a "ping" -d 'Ask the servers at these NIDs whether they answer, by the way that this host\'s nets and routes give. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_needs_command" -f -a "route" -d 'Show, add, remove and check routes: which router leads from one net to another'
complete -c stria -n "__fish_stria_needs_command" -f -a "mount" -d 'Mount a file system: NID:/fsname on a directory, or as a configuration file says'
complete -c stria -n "__fish_stria_needs_command" -f -a "mkfs" -d 'Make a target on a block device or in a file: an OST for `stria oss`, an MDT for `stria mds`'
complete -c stria -n "__fish_stria_needs_command" -f -a "mgs" -d 'Run the management service: keeper of the cluster map, which servers and clients ask first'
complete -c stria -n "__fish_stria_needs_command" -f -a "mds" -d 'Run a metadata server with one MDT; its device is formatted only with --format, foreign content is refused'
complete -c stria -n "__fish_stria_needs_command" -f -a "oss" -d 'Run an object storage server, one OST per device; devices are formatted only with --format, foreign content is refused'
complete -c stria -n "__fish_stria_needs_command" -f -a "router" -d 'Run a router, which joins nets: hosts on one reach servers on another through it. Or look at one that runs here'
complete -c stria -n "__fish_stria_needs_command" -f -a "completions" -d 'Print completions for a shell: commands, options, and the values of options that have a set of them'
complete -c stria -n "__fish_stria_needs_command" -f -a "bundle" -d 'Collect what a supporter asks for in one archive: versions, health, targets, mirrors, jobs, recent damage, configurations, the ends of logs, this host. Lines with secrets are left out, and keys and certificates are not taken. File and host names are in it: look before you send it'
complete -c stria -n "__fish_stria_needs_command" -f -a "explain" -d 'Explain a term, an error message, a code such as ENOSPC or a metric, as the documents of this release do'
complete -c stria -n "__fish_stria_needs_command" -f -a "version" -d 'Print the version, and the frame and handshake versions that peers must share'
complete -c stria -n "__fish_stria_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand up" -l dir -d 'Directory of the file system: targets are sparse files in it. Made if it does not exist' -r -F
complete -c stria -n "__fish_stria_using_subcommand up" -l osts -d 'Number of OSTs of a new file system [default: 4]' -r
complete -c stria -n "__fish_stria_using_subcommand up" -l mdts -d 'Number of MDTs of a new file system [default: 1]' -r
complete -c stria -n "__fish_stria_using_subcommand up" -l ost-size -d 'Size of each OST of a new file system [default: 8G]' -r
complete -c stria -n "__fish_stria_using_subcommand up" -l mdt-size -d 'Size of each MDT of a new file system [default: 8G]' -r
complete -c stria -n "__fish_stria_using_subcommand up" -l fsname -d 'Name of a new file system [default: stria]' -r
complete -c stria -n "__fish_stria_using_subcommand up" -l inline-max -d 'Files up to this size live in the MDT (as `setstripe --inline` on the root); 0 = none [default: 64K]' -r
complete -c stria -n "__fish_stria_using_subcommand up" -l mdt-cache -d 'Memory limit for the MDT\'s records [default: a quarter of the machine\'s, at least 64M]' -r
complete -c stria -n "__fish_stria_using_subcommand up" -l mount -d 'Where to mount it; without, servers only, or where it was mounted when it was killed' -r -F
complete -c stria -n "__fish_stria_using_subcommand up" -s o -d 'Mount options, separated by commas: those of `stria mount`' -r
complete -c stria -n "__fish_stria_using_subcommand up" -l metrics -d 'Address and port of a page with numbers of this process for Prometheus, at /metrics. The two servers of a pair have the next two ports' -r
complete -c stria -n "__fish_stria_using_subcommand up" -l server -d 'Serves one of the two servers of a pair' -r
complete -c stria -n "__fish_stria_using_subcommand up" -l no-mount -d 'Servers only, also where it was mounted when it was killed'
complete -c stria -n "__fish_stria_using_subcommand up" -l allow-other -d 'Let other users use the mount [default: yes if root mounts]'
complete -c stria -n "__fish_stria_using_subcommand up" -l no-allow-other -d 'Keep the mount to who mounted it'
complete -c stria -n "__fish_stria_using_subcommand up" -l pair -d 'A new file system has two server processes, and every target is a mirror with a member in each: for trying mirrors out'
complete -c stria -n "__fish_stria_using_subcommand up" -l foreground -d 'Stay in the foreground, with log lines on stderr'
complete -c stria -n "__fish_stria_using_subcommand up" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand up" -l detached -d 'In the background: words go to the waiting parent'
complete -c stria -n "__fish_stria_using_subcommand up" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand down" -l dir -d 'The directory that `stria up` was given' -r -F
complete -c stria -n "__fish_stria_using_subcommand down" -l purge -d 'Delete the file system: every file that `stria up` made in the directory, and nothing else'
complete -c stria -n "__fish_stria_using_subcommand down" -l force -d 'Unmount even if the mount is in use; kill the process if it does not end'
complete -c stria -n "__fish_stria_using_subcommand down" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand down" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand status" -l dir -d 'The directory that `stria up` was given. Without: every file system that is mounted here' -r -F
complete -c stria -n "__fish_stria_using_subcommand status" -l mgs -d 'The management service, with no mount here: NID[,NID...], and :/FSNAME for one of its file systems' -r
complete -c stria -n "__fish_stria_using_subcommand status" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand status" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand health" -l dir -d 'The directory that `stria up` was given. Without: every file system that is mounted here' -r -F
complete -c stria -n "__fish_stria_using_subcommand health" -l mgs -d 'The management service, with no mount here: NID[,NID...], and :/FSNAME for one of its file systems' -r
complete -c stria -n "__fish_stria_using_subcommand health" -l hints -d 'Show the next step for each finding, and advice'
complete -c stria -n "__fish_stria_using_subcommand health" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand health" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand dash" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand dash" -l mgs -d 'The management service: NID[,NID...], with :/FSNAME if it has several file systems' -r
complete -c stria -n "__fish_stria_using_subcommand dash" -l listen -d 'Loopback address and port of the page. Port 0: a free one' -r
complete -c stria -n "__fish_stria_using_subcommand dash" -l state -d 'Directory of the token and the history, of less than 1 MiB. Default: /var/lib/stria/dash for root, otherwise ~/.local/state/stria/dash' -r -F
complete -c stria -n "__fish_stria_using_subcommand dash" -l every -d 'Seconds between two looks at the file system' -r
complete -c stria -n "__fish_stria_using_subcommand dash" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand df" -l mgs -d 'The management service, with no mount here: NID[,NID...], and :/FSNAME for one of its file systems' -r
complete -c stria -n "__fish_stria_using_subcommand df" -s h -l human-readable -d 'Sizes with a letter instead of 1024-byte blocks'
complete -c stria -n "__fish_stria_using_subcommand df" -s i -l inodes -d 'Inodes (MDT) and objects (OST) instead of space'
complete -c stria -n "__fish_stria_using_subcommand df" -s j -l json -d 'JSON output: all numbers, of targets and of their sum'
complete -c stria -n "__fish_stria_using_subcommand df" -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand du" -s s -l summarize -d 'Only the total of each path. It is what is always shown; the option is there for the habit'
complete -c stria -n "__fish_stria_using_subcommand du" -s h -l human-readable -d 'Sizes with a letter instead of 1024-byte blocks'
complete -c stria -n "__fish_stria_using_subcommand du" -l apparent-size -d 'Sizes as files say them, holes and all, instead of the space that they take. A directory says 4096'
complete -c stria -n "__fish_stria_using_subcommand du" -s b -l bytes -d 'As --apparent-size, in bytes'
complete -c stria -n "__fish_stria_using_subcommand du" -l inodes -d 'How many files, directories and others there are, instead of sizes'
complete -c stria -n "__fish_stria_using_subcommand du" -s j -l json -d 'All numbers as JSON, in bytes'
complete -c stria -n "__fish_stria_using_subcommand du" -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand find" -s j -l json -d 'JSON output: an object per line, as with -json'
complete -c stria -n "__fish_stria_using_subcommand find" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c stria -n "__fish_stria_using_subcommand setstripe" -s c -l stripe-count -d 'Stripes; 0 = default, -1 = all OSTs' -r
complete -c stria -n "__fish_stria_using_subcommand setstripe" -s S -l stripe-size -d 'Bytes per stripe before the next one; a power of two from 64K' -r
complete -c stria -n "__fish_stria_using_subcommand setstripe" -s i -l stripe-index -d 'Index of the first OST; -1 = any' -r
complete -c stria -n "__fish_stria_using_subcommand setstripe" -s E -l component-end -d 'Offset where a component ends; -1 or eof = end of the file. Later letters belong to it' -r
complete -c stria -n "__fish_stria_using_subcommand setstripe" -l inline -d 'Files up to this size stay in the MDT; 0 = none' -r
complete -c stria -n "__fish_stria_using_subcommand setstripe" -s d -l delete -d 'Delete the striping: back to the default of the file system'
complete -c stria -n "__fish_stria_using_subcommand setstripe" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand getstripe" -s y -l yaml -d 'YAML'
complete -c stria -n "__fish_stria_using_subcommand getstripe" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand getstripe" -s d -l directory -d 'Of a directory only what it hands down, not its files'
complete -c stria -n "__fish_stria_using_subcommand getstripe" -s r -l recursive -d 'Of a directory all that is below it, and not its files alone'
complete -c stria -n "__fish_stria_using_subcommand getstripe" -s c -l stripe-count -d 'Only the stripe count; -1: all OSTs (of a progressive file: of the last part with content, or of the first)'
complete -c stria -n "__fish_stria_using_subcommand getstripe" -s S -l stripe-size -d 'Only the stripe size in bytes'
complete -c stria -n "__fish_stria_using_subcommand getstripe" -s i -l stripe-index -d 'Only the index of the first OST; -1: any'
complete -c stria -n "__fish_stria_using_subcommand getstripe" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand id2path" -l dir -d 'The directory of a running `stria up`; paths begin at the file system\'s root' -r -F
complete -c stria -n "__fish_stria_using_subcommand id2path" -s 0 -l null -d 'End each path with a NUL byte instead of a newline, for names with newlines (xargs -0)'
complete -c stria -n "__fish_stria_using_subcommand id2path" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand id2path" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand path2id" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand path2id" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand fsck" -l dir -d 'The directory that `stria up` was given' -r -F
complete -c stria -n "__fish_stria_using_subcommand fsck" -l mgs -d 'The management service of servers that run, in place of --dir: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand fsck" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand fsck" -l repair -d 'Tell what each repair would do, ask, then repair what has one safe answer'
complete -c stria -n "__fish_stria_using_subcommand fsck" -s y -l yes -d 'Repair without asking'
complete -c stria -n "__fish_stria_using_subcommand fsck" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand damage; and not __fish_seen_subcommand_from list clear help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand damage; and not __fish_seen_subcommand_from list clear help" -f -a "list" -d 'List known damage. Exit code 1 if there is any that was not repaired'
complete -c stria -n "__fish_stria_using_subcommand damage; and not __fish_seen_subcommand_from list clear help" -f -a "clear" -d 'Forget damage records: of one file (PATH), or of all (--dir). Bytes that are still bad are found again when read'
complete -c stria -n "__fish_stria_using_subcommand damage; and not __fish_seen_subcommand_from list clear help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from list" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from list" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from clear" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from clear" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from clear" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from clear" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from help" -f -a "list" -d 'List known damage. Exit code 1 if there is any that was not repaired'
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from help" -f -a "clear" -d 'Forget damage records: of one file (PATH), or of all (--dir). Bytes that are still bad are found again when read'
complete -c stria -n "__fish_stria_using_subcommand damage; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand scrub; and not __fish_seen_subcommand_from status start pause resume stop set help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand scrub; and not __fish_seen_subcommand_from status start pause resume stop set help" -f -a "status" -d 'Show state, progress and the last pass of each target. Exit code 1 if the last or the present pass found bad pages'
complete -c stria -n "__fish_stria_using_subcommand scrub; and not __fish_seen_subcommand_from status start pause resume stop set help" -f -a "start" -d 'Begin a pass over all objects and records; where one runs already, it goes on. That of an OST goes on after a restart, too'
complete -c stria -n "__fish_stria_using_subcommand scrub; and not __fish_seen_subcommand_from status start pause resume stop set help" -f -a "pause" -d 'Hold a pass where it is, until `resume`'
complete -c stria -n "__fish_stria_using_subcommand scrub; and not __fish_seen_subcommand_from status start pause resume stop set help" -f -a "resume" -d 'Let a paused pass go on'
complete -c stria -n "__fish_stria_using_subcommand scrub; and not __fish_seen_subcommand_from status start pause resume stop set help" -f -a "stop" -d 'End a pass before its end. The next begins anew'
complete -c stria -n "__fish_stria_using_subcommand scrub; and not __fish_seen_subcommand_from status start pause resume stop set help" -f -a "set" -d 'Set how fast it reads on OSTs and how often it begins by itself there. It is kept on the OST'
complete -c stria -n "__fish_stria_using_subcommand scrub; and not __fish_seen_subcommand_from status start pause resume stop set help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from status" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from status" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from status" -l ost -d 'Only this OST, by index; may be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from status" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from start" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from start" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from start" -l ost -d 'Only this OST, by index; may be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from start" -l rate -d 'Bytes per second that each target reads at most, from now on; 0: no bound. An MDT forgets it at its end' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from start" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from start" -l wait -d 'Wait until the pass has ended everywhere. Exit code 1 if it found bad pages'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from pause" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from pause" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from pause" -l ost -d 'Only this OST, by index; may be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from pause" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from pause" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from resume" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from resume" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from resume" -l ost -d 'Only this OST, by index; may be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from resume" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from stop" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from stop" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from stop" -l ost -d 'Only this OST, by index; may be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from stop" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from stop" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from set" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from set" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from set" -l ost -d 'Only this OST, by index; may be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from set" -l rate -d 'Bytes per second that each OST reads at most; 0: no bound' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from set" -l every -d 'From the end of a pass to the begin of the next: 12h, 28d, 4w, or never' -r
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from set" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show state, progress and the last pass of each target. Exit code 1 if the last or the present pass found bad pages'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from help" -f -a "start" -d 'Begin a pass over all objects and records; where one runs already, it goes on. That of an OST goes on after a restart, too'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from help" -f -a "pause" -d 'Hold a pass where it is, until `resume`'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from help" -f -a "resume" -d 'Let a paused pass go on'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from help" -f -a "stop" -d 'End a pass before its end. The next begins anew'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from help" -f -a "set" -d 'Set how fast it reads on OSTs and how often it begins by itself there. It is kept on the OST'
complete -c stria -n "__fish_stria_using_subcommand scrub; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand task; and not __fish_seen_subcommand_from list pause resume help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand task; and not __fish_seen_subcommand_from list pause resume help" -f -a "list" -d 'Show what goes on and what is paused, how far it is, and what remains to be done by hand'
complete -c stria -n "__fish_stria_using_subcommand task; and not __fish_seen_subcommand_from list pause resume help" -f -a "pause" -d 'Pause tasks: resync:TARGET, drain:TARGET, scrub:TARGET or verify:TARGET. It lasts until it is taken back, also over restarts. The comparison of an MDT is not paused: it keeps a snapshot in memory'
complete -c stria -n "__fish_stria_using_subcommand task; and not __fish_seen_subcommand_from list pause resume help" -f -a "resume" -d 'Let paused tasks go on'
complete -c stria -n "__fish_stria_using_subcommand task; and not __fish_seen_subcommand_from list pause resume help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from list" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from list" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from list" -l mount -d 'A path on a mount. Without any of these: the mount on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from pause" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from pause" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from pause" -l mount -d 'A path on a mount. Without any of these: the mount on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from pause" -s j -l json -d 'JSON output: the tasks that were named'
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from pause" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from resume" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from resume" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from resume" -l mount -d 'A path on a mount. Without any of these: the mount on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from resume" -s j -l json -d 'JSON output: the tasks that were named'
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show what goes on and what is paused, how far it is, and what remains to be done by hand'
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "pause" -d 'Pause tasks: resync:TARGET, drain:TARGET, scrub:TARGET or verify:TARGET. It lasts until it is taken back, also over restarts. The comparison of an MDT is not paused: it keeps a snapshot in memory'
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "resume" -d 'Let paused tasks go on'
complete -c stria -n "__fish_stria_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand get-param" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand get-param" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand get-param" -l mount -d 'A path on a mount. Without any of these: the mount on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand get-param" -s n -d 'Values alone'
complete -c stria -n "__fish_stria_using_subcommand get-param" -s j -l json -d 'JSON output: also what is kept, live and the base'
complete -c stria -n "__fish_stria_using_subcommand get-param" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand set-param" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand set-param" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand set-param" -l mount -d 'A path on a mount. Without any of these: the mount on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand set-param" -s P -l persistent -d 'Keep them in the cluster map'
complete -c stria -n "__fish_stria_using_subcommand set-param" -s d -l default -d 'Take live values back; with -P also the kept ones'
complete -c stria -n "__fish_stria_using_subcommand set-param" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand set-param" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand list-param" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand list-param" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand changelog; and not __fish_seen_subcommand_from register deregister read ack list help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand changelog; and not __fish_seen_subcommand_from register deregister read ack list help" -f -a "register" -d 'Make a consumer: from now on changes are kept for it. They take an eighth of the MDT\'s room at most: a consumer that is too far behind then loses the oldest, and is told'
complete -c stria -n "__fish_stria_using_subcommand changelog; and not __fish_seen_subcommand_from register deregister read ack list help" -f -a "deregister" -d 'Forget a consumer, and what is kept for it alone'
complete -c stria -n "__fish_stria_using_subcommand changelog; and not __fish_seen_subcommand_from register deregister read ack list help" -f -a "read" -d 'Show changes that the consumer has not acknowledged, as far as a power loss of the MDT cannot take them back. Exit code 1 if some were lost'
complete -c stria -n "__fish_stria_using_subcommand changelog; and not __fish_seen_subcommand_from register deregister read ack list help" -f -a "ack" -d 'The consumer is done with all changes up to NUMBER'
complete -c stria -n "__fish_stria_using_subcommand changelog; and not __fish_seen_subcommand_from register deregister read ack list help" -f -a "list" -d 'Show the consumers, and what is kept for them. Exit code 1 if one has lost changes'
complete -c stria -n "__fish_stria_using_subcommand changelog; and not __fish_seen_subcommand_from register deregister read ack list help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from register" -s m -l mask -d 'Kinds of changes that it reads: all, or some of create, mkdir, link, symlink, mknod, unlink, rmdir, rename, close, layout, truncate, setattr, xattr, write; or as Lustre calls them (CREAT, UNLNK, ...). Separated by commas' -r -f -a "all\t''
create\t''
mkdir\t''
link\t''
symlink\t''
mknod\t''
unlink\t''
rmdir\t''
rename\t''
close\t''
layout\t''
truncate\t''
setattr\t''
xattr\t''
write\t''"
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from register" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from register" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from register" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from deregister" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from deregister" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from read" -l after -d 'Go on behind this change' -r
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from read" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from read" -s f -l follow -d 'Go on for ever, with each change as it comes, also over restarts of servers'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from read" -s j -l json -d 'JSON output: an object per line'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from read" -l lustre -d 'The columns of `lfs changelog`. Flags: 0x1 that was the last name; 0x2 the two names of a rename changed places'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from read" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from ack" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from ack" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from list" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from help" -f -a "register" -d 'Make a consumer: from now on changes are kept for it. They take an eighth of the MDT\'s room at most: a consumer that is too far behind then loses the oldest, and is told'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from help" -f -a "deregister" -d 'Forget a consumer, and what is kept for it alone'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from help" -f -a "read" -d 'Show changes that the consumer has not acknowledged, as far as a power loss of the MDT cannot take them back. Exit code 1 if some were lost'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from help" -f -a "ack" -d 'The consumer is done with all changes up to NUMBER'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show the consumers, and what is kept for them. Exit code 1 if one has lost changes'
complete -c stria -n "__fish_stria_using_subcommand changelog; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand cluster; and not __fish_seen_subcommand_from init add-node issue revoke publish rotate list help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand cluster; and not __fish_seen_subcommand_from init add-node issue revoke publish rotate list help" -f -a "init" -d 'Make the CA of a new cluster, and the first certificates: an administrator\'s and a server\'s for this host'
complete -c stria -n "__fish_stria_using_subcommand cluster; and not __fish_seen_subcommand_from init add-node issue revoke publish rotate list help" -f -a "add-node" -d 'Issue the certificate of a new node: a server, unless --role says otherwise'
complete -c stria -n "__fish_stria_using_subcommand cluster; and not __fish_seen_subcommand_from init add-node issue revoke publish rotate list help" -f -a "issue" -d 'Issue a certificate again, before it expires or after its key was lost. The earlier one stays valid until it is revoked'
complete -c stria -n "__fish_stria_using_subcommand cluster; and not __fish_seen_subcommand_from init add-node issue revoke publish rotate list help" -f -a "revoke" -d 'Revoke the certificates of a node, or one by its serial. With --mgs the cluster refuses them at once'
complete -c stria -n "__fish_stria_using_subcommand cluster; and not __fish_seen_subcommand_from init add-node issue revoke publish rotate list help" -f -a "publish" -d 'Put the revocation lists of the CA directory into the cluster map: all servers, routers and mounts take them at once'
complete -c stria -n "__fish_stria_using_subcommand cluster; and not __fish_seen_subcommand_from init add-node issue revoke publish rotate list help" -f -a "rotate" -d 'Make a new CA beside the current one, and issue all valid certificates again; later, with --finish, end the earlier CA'
complete -c stria -n "__fish_stria_using_subcommand cluster; and not __fish_seen_subcommand_from init add-node issue revoke publish rotate list help" -f -a "list" -d 'Show all certificates. Exit code 1 if one expires within 30 days, or the CA within a year'
complete -c stria -n "__fish_stria_using_subcommand cluster; and not __fish_seen_subcommand_from init add-node issue revoke publish rotate list help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from init" -l name -d 'Name of the cluster: a-z, 0-9, \'.\' and \'-\', 63 at most. It stands in every certificate and cannot be changed' -r
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from init" -l node -d 'Name of this host in its certificates [default: its host name]' -r
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from init" -l dir -d 'Directory of the CA' -r -F
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from init" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from add-node" -l role -d 'What the node may do: serve, mount, administer the cluster, or join nets' -r -f -a "server\t''
client\t''
admin\t''
router\t''"
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from add-node" -l days -d 'Days until the certificate expires' -r
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from add-node" -l dir -d 'Directory of the CA' -r -F
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from add-node" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from issue" -l role -d 'What the node may do' -r -f -a "server\t''
client\t''
admin\t''
router\t''"
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from issue" -l days -d 'Days until the certificate expires' -r
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from issue" -l dir -d 'Directory of the CA' -r -F
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from issue" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from revoke" -l role -d 'Only the certificates with this role' -r -f -a "server\t''
client\t''
admin\t''
router\t''"
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from revoke" -l reason -d 'Why, for the list and for people' -r -f -a "unspecified\t''
key-compromise\t''
superseded\t''
retired\t''"
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from revoke" -l mgs -d 'Put the new revocation list into the map of this management service: NID[,NID...]. Needs an administrator\'s certificate' -r
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from revoke" -l dir -d 'Directory of the CA' -r -F
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from publish" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from publish" -l dir -d 'Directory of the CA' -r -F
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from publish" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from rotate" -l dir -d 'Directory of the CA' -r -F
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from rotate" -l finish -d 'End the rotation: certificates of the earlier CA count no longer'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from rotate" -l yes -d 'End it although valid certificates of the earlier CA were not issued again'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from rotate" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from list" -l dir -d 'Directory of the CA' -r -F
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from help" -f -a "init" -d 'Make the CA of a new cluster, and the first certificates: an administrator\'s and a server\'s for this host'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from help" -f -a "add-node" -d 'Issue the certificate of a new node: a server, unless --role says otherwise'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from help" -f -a "issue" -d 'Issue a certificate again, before it expires or after its key was lost. The earlier one stays valid until it is revoked'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from help" -f -a "revoke" -d 'Revoke the certificates of a node, or one by its serial. With --mgs the cluster refuses them at once'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from help" -f -a "publish" -d 'Put the revocation lists of the CA directory into the cluster map: all servers, routers and mounts take them at once'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from help" -f -a "rotate" -d 'Make a new CA beside the current one, and issue all valid certificates again; later, with --finish, end the earlier CA'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show all certificates. Exit code 1 if one expires within 30 days, or the CA within a year'
complete -c stria -n "__fish_stria_using_subcommand cluster; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand fs; and not __fish_seen_subcommand_from create list remove help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand fs; and not __fish_seen_subcommand_from create list remove help" -f -a "create" -d 'Make a file system, to which targets then register in any order. Without it the first MDT with a new name makes its file system'
complete -c stria -n "__fish_stria_using_subcommand fs; and not __fish_seen_subcommand_from create list remove help" -f -a "list" -d 'Show each file system: its targets, those that do not answer, and its capacity. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_using_subcommand fs; and not __fish_seen_subcommand_from create list remove help" -f -a "remove" -d 'Remove a file system with all its targets from the cluster map. Their devices are not touched. Its servers must be stopped. Without --confirm it only shows what would be lost, and ends with exit code 1'
complete -c stria -n "__fish_stria_using_subcommand fs; and not __fish_seen_subcommand_from create list remove help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from create" -l inline-max -d 'Files up to this size lie in the MDT, 64K at most; 0: none does' -r
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from create" -l commit-interval -d 'Milliseconds between background flushes: what a power cut of all servers may lose' -r
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from create" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from create" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from create" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from list" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from list" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from remove" -l confirm -d 'Do it. The token is that of --dry-run with the same options, for the present state of the cluster' -r
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from remove" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from remove" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from remove" -l dry-run -d 'Show what would be done and lost, and the token that confirms it. Nothing is changed'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from remove" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from help" -f -a "create" -d 'Make a file system, to which targets then register in any order. Without it the first MDT with a new name makes its file system'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show each file system: its targets, those that do not answer, and its capacity. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove a file system with all its targets from the cluster map. Their devices are not touched. Its servers must be stopped. Without --confirm it only shows what would be lost, and ends with exit code 1'
complete -c stria -n "__fish_stria_using_subcommand fs; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand target; and not __fish_seen_subcommand_from add drain undrain remove replace show help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand target; and not __fish_seen_subcommand_from add drain undrain remove replace show help" -f -a "add" -d 'Make a new OST on this host, or a second member for one that has none. It makes the device, and tells which line of the server\'s configuration takes it'
complete -c stria -n "__fish_stria_using_subcommand target; and not __fish_seen_subcommand_from add drain undrain remove replace show help" -f -a "drain" -d 'Retire an OST: it gets no new objects, and the content of all files there moves to other OSTs while programs use them. It may be stopped (Ctrl-C) and run again at any time'
complete -c stria -n "__fish_stria_using_subcommand target; and not __fish_seen_subcommand_from add drain undrain remove replace show help" -f -a "undrain" -d 'Take the mark of a drain back: the OST takes new objects again. Content that has moved stays there'
complete -c stria -n "__fish_stria_using_subcommand target; and not __fish_seen_subcommand_from add drain undrain remove replace show help" -f -a "remove" -d 'Remove an OST from the cluster map, with the bytes of files there. Its device is not touched. Without --confirm it only shows what would be lost, and ends with exit code 1. An MDT goes with its file system (`stria fs remove`). A member of a mirror of two goes alone, by its id, if it is out: no file loses bytes'
complete -c stria -n "__fish_stria_using_subcommand target; and not __fish_seen_subcommand_from add drain undrain remove replace show help" -f -a "replace" -d 'Replace the device of a member that is out. On the host with the new device: makes the target there, and takes the lost member out of the cluster map. The server that gets the device then has it filled by the other member, beside the work of clients'
complete -c stria -n "__fish_stria_using_subcommand target; and not __fish_seen_subcommand_from add drain undrain remove replace show help" -f -a "show" -d 'Print what the superblocks of devices tell of their targets, as JSON for `stria mgs rebuild`. Nothing is written. Servers may have the devices in use: without a management service no epoch changes'
complete -c stria -n "__fish_stria_using_subcommand target; and not __fish_seen_subcommand_from add drain undrain remove replace show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from add" -l device -d 'The new device or file on this host. A device that is not blank is refused' -r -F
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from add" -l fsname -d 'The file system that it belongs to [default: the only one]' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from add" -l size -d 'Make a sparse file of this size, where there is none yet' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from add" -l to-mirror -d 'Make it the second member of this OST, which has no other one. Its host is another one than the first member\'s' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from add" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from add" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from add" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from drain" -l rate -d 'Copy at most so many bytes per second' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from drain" -l for -d 'End after so many seconds with what is left. Another run goes on' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from drain" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from drain" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from drain" -l no-move -d 'Only mark it: new objects go elsewhere, and its content stays'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from drain" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from drain" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from undrain" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from undrain" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from undrain" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from undrain" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from remove" -l confirm -d 'Do it. The token is that of --dry-run with the same options, for the present state of the cluster' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from remove" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from remove" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from remove" -l force -d 'Also if it is up. It is better to stop its server first: its clients lose what it has not flushed'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from remove" -l dry-run -d 'Show what would be done and lost, and the token that confirms it. Nothing is changed'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from remove" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from replace" -l device -d 'The new device or file on this host. A device that is not blank is refused' -r -F
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from replace" -l size -d 'Make a sparse file of this size, where there is none yet' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from replace" -l confirm -d 'Do it. The token is that of --dry-run with the same options, for the present state of the cluster' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from replace" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from replace" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from replace" -l dry-run -d 'Show what would be done and lost, and the token that confirms it. Nothing is changed'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from replace" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from replace" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "add" -d 'Make a new OST on this host, or a second member for one that has none. It makes the device, and tells which line of the server\'s configuration takes it'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "drain" -d 'Retire an OST: it gets no new objects, and the content of all files there moves to other OSTs while programs use them. It may be stopped (Ctrl-C) and run again at any time'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "undrain" -d 'Take the mark of a drain back: the OST takes new objects again. Content that has moved stays there'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove an OST from the cluster map, with the bytes of files there. Its device is not touched. Without --confirm it only shows what would be lost, and ends with exit code 1. An MDT goes with its file system (`stria fs remove`). A member of a mirror of two goes alone, by its id, if it is out: no file loses bytes'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "replace" -d 'Replace the device of a member that is out. On the host with the new device: makes the target there, and takes the lost member out of the cluster map. The server that gets the device then has it filled by the other member, beside the work of clients'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "show" -d 'Print what the superblocks of devices tell of their targets, as JSON for `stria mgs rebuild`. Nothing is written. Servers may have the devices in use: without a management service no epoch changes'
complete -c stria -n "__fish_stria_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand node; and not __fish_seen_subcommand_from list remove help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand node; and not __fish_seen_subcommand_from list remove help" -f -a "list" -d 'Show the nodes of the cluster map: id, name, addresses and targets. Several servers on one host are several nodes'
complete -c stria -n "__fish_stria_using_subcommand node; and not __fish_seen_subcommand_from list remove help" -f -a "remove" -d 'Remove a node without targets from the cluster map. Without --confirm it only shows the node, and ends with exit code 1'
complete -c stria -n "__fish_stria_using_subcommand node; and not __fish_seen_subcommand_from list remove help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from list" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from list" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from remove" -l confirm -d 'Do it. The token is that of --dry-run with the same options, for the present state of the cluster' -r
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from remove" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from remove" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from remove" -l dry-run -d 'Show what would be done and lost, and the token that confirms it. Nothing is changed'
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from remove" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show the nodes of the cluster map: id, name, addresses and targets. Several servers on one host are several nodes'
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove a node without targets from the cluster map. Without --confirm it only shows the node, and ends with exit code 1'
complete -c stria -n "__fish_stria_using_subcommand node; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand mirror; and not __fish_seen_subcommand_from list status switch verify resync help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mirror; and not __fish_seen_subcommand_from list status switch verify resync help" -f -a "list" -d 'Show each mirror: its members, their hosts and states, the primary, the epoch. A target without a second member is a mirror of one'
complete -c stria -n "__fish_stria_using_subcommand mirror; and not __fish_seen_subcommand_from list status switch verify resync help" -f -a "status" -d 'Show one mirror: what its members tell of themselves, what one of them waits for, and the next step'
complete -c stria -n "__fish_stria_using_subcommand mirror; and not __fish_seen_subcommand_from list status switch verify resync help" -f -a "switch" -d 'Have the other member of a mirror become its primary, without a stop. Programs wait for a moment'
complete -c stria -n "__fish_stria_using_subcommand mirror; and not __fish_seen_subcommand_from list status switch verify resync help" -f -a "verify" -d 'Compare the content of both members while the file system is in use. A range of an OST that differs gets the primary\'s content at both. Records of an MDT are compared only; the command names the next step'
complete -c stria -n "__fish_stria_using_subcommand mirror; and not __fish_seen_subcommand_from list status switch verify resync help" -f -a "resync" -d 'Have the follower of a mirror, whose content is in doubt, take all content of the primary anew. There is one copy until that has ended'
complete -c stria -n "__fish_stria_using_subcommand mirror; and not __fish_seen_subcommand_from list status switch verify resync help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from list" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from list" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from status" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from status" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from status" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from switch" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from switch" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from switch" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from switch" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from verify" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from verify" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from verify" -l all -d 'All mirrors with two members, one after the other'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from verify" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from verify" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from resync" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from resync" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from resync" -l confirm -d 'Do it. The token is that of --dry-run with the same options, for the present state of the cluster' -r
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from resync" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from resync" -l lose-damaged -d 'Go on though the primary has damage that it cannot repair. The other member\'s pages there, which may be sound, are lost then'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from resync" -l dry-run -d 'Show what would be done and lost, and the token that confirms it. Nothing is changed'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from resync" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show each mirror: its members, their hosts and states, the primary, the epoch. A target without a second member is a mirror of one'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show one mirror: what its members tell of themselves, what one of them waits for, and the next step'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from help" -f -a "switch" -d 'Have the other member of a mirror become its primary, without a stop. Programs wait for a moment'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from help" -f -a "verify" -d 'Compare the content of both members while the file system is in use. A range of an OST that differs gets the primary\'s content at both. Records of an MDT are compared only; the command names the next step'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from help" -f -a "resync" -d 'Have the follower of a mirror, whose content is in doubt, take all content of the primary anew. There is one copy until that has ended'
complete -c stria -n "__fish_stria_using_subcommand mirror; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand server; and not __fish_seen_subcommand_from drain rejoin balance help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand server; and not __fish_seen_subcommand_from drain rejoin balance help" -f -a "drain" -d 'Hand over each mirror whose primary is on this host, without a stop. It stays in sync as a follower, and may be stopped then'
complete -c stria -n "__fish_stria_using_subcommand server; and not __fish_seen_subcommand_from drain rejoin balance help" -f -a "rejoin" -d 'Hand back to this host the mirrors whose first member is there, after a drain or a restart'
complete -c stria -n "__fish_stria_using_subcommand server; and not __fish_seen_subcommand_from drain rejoin balance help" -f -a "balance" -d 'Hand over mirrors so that the first member of each is the primary again: then primaries alternate between the servers'
complete -c stria -n "__fish_stria_using_subcommand server; and not __fish_seen_subcommand_from drain rejoin balance help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from drain" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from drain" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from drain" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from drain" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from rejoin" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from rejoin" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from rejoin" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from rejoin" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from balance" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from balance" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from balance" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from balance" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from help" -f -a "drain" -d 'Hand over each mirror whose primary is on this host, without a stop. It stays in sync as a follower, and may be stopped then'
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from help" -f -a "rejoin" -d 'Hand back to this host the mirrors whose first member is there, after a drain or a restart'
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from help" -f -a "balance" -d 'Hand over mirrors so that the first member of each is the primary again: then primaries alternate between the servers'
complete -c stria -n "__fish_stria_using_subcommand server; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and not __fish_seen_subcommand_from add modify list test remove help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and not __fish_seen_subcommand_from add modify list test remove help" -f -a "add" -d 'Add or change a nodemap. Options that are not given stay as they are; a new nodemap has the given effects only'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and not __fish_seen_subcommand_from add modify list test remove help" -f -a "modify" -d 'Add or change a nodemap. Options that are not given stay as they are; a new nodemap has the given effects only'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and not __fish_seen_subcommand_from add modify list test remove help" -f -a "list" -d 'List the nodemaps in the order in which they are looked at'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and not __fish_seen_subcommand_from add modify list test remove help" -f -a "test" -d 'Show which nodemap a node takes, and what it does to a caller. Nothing is changed, and no node is asked'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and not __fish_seen_subcommand_from add modify list test remove help" -f -a "remove" -d 'Remove a nodemap. Its nodes take the next one that matches'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and not __fish_seen_subcommand_from add modify list test remove help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l priority -d 'The lowest number is looked at first. A new nodemap: 100' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l role -d 'Role of the certificate: server, client, admin or router. \'\' matches all, here and below' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l node -d 'Node name of the certificate; * stands for any characters' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l net -d 'Net on which the node reaches a server: tcp0, tcp1, ... or local0 for the server\'s own host' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l address -d 'Addresses, as 10.1.0.0/16. Behind a router a server sees the router\'s address' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l ban -d 'Refuse the node. --ban=false ends it' -r -f -a "true\t''
false\t''"
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l read-only -d 'Refuse all changes. --read-only=false ends it' -r -f -a "true\t''
false\t''"
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l squash -d 'Callers that become one user' -r -f -a "none\t''
root\t'User 0'
all\t'Every user'"
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l squash-to -d 'User and group of squashed callers, and of ids that no range has. A new nodemap: 65534:65534' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l uid-map -d 'Users FROM, FROM+1, ... of the node are TO, TO+1, ... of the file system. Several with commas; `none` ends it' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l gid-map -d 'As --uid-map, for groups' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l root -d 'The directory that the node sees as its root, as a path in the file system. / ends it' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l priority -d 'The lowest number is looked at first. A new nodemap: 100' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l role -d 'Role of the certificate: server, client, admin or router. \'\' matches all, here and below' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l node -d 'Node name of the certificate; * stands for any characters' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l net -d 'Net on which the node reaches a server: tcp0, tcp1, ... or local0 for the server\'s own host' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l address -d 'Addresses, as 10.1.0.0/16. Behind a router a server sees the router\'s address' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l ban -d 'Refuse the node. --ban=false ends it' -r -f -a "true\t''
false\t''"
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l read-only -d 'Refuse all changes. --read-only=false ends it' -r -f -a "true\t''
false\t''"
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l squash -d 'Callers that become one user' -r -f -a "none\t''
root\t'User 0'
all\t'Every user'"
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l squash-to -d 'User and group of squashed callers, and of ids that no range has. A new nodemap: 65534:65534' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l uid-map -d 'Users FROM, FROM+1, ... of the node are TO, TO+1, ... of the file system. Several with commas; `none` ends it' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l gid-map -d 'As --uid-map, for groups' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l root -d 'The directory that the node sees as its root, as a path in the file system. / ends it' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from modify" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from list" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from list" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from test" -l cert -d 'The node\'s certificate. Absent: it has none' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from test" -l nid -d 'The address that a server sees, and the net on which it does' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from test" -l uid -d 'A user of the node' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from test" -l gid -d 'Its group. Absent: the number of the user' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from test" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from test" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from test" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from test" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from remove" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from remove" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add or change a nodemap. Options that are not given stay as they are; a new nodemap has the given effects only'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from help" -f -a "modify" -d 'Add or change a nodemap. Options that are not given stay as they are; a new nodemap has the given effects only'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the nodemaps in the order in which they are looked at'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from help" -f -a "test" -d 'Show which nodemap a node takes, and what it does to a caller. Nothing is changed, and no node is asked'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Remove a nodemap. Its nodes take the next one that matches'
complete -c stria -n "__fish_stria_using_subcommand nodemap; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand gateway; and not __fish_seen_subcommand_from nfs smb help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand gateway; and not __fish_seen_subcommand_from nfs smb help" -f -a "nfs" -d 'NFS 3 and 4 by NFS-Ganesha (packages nfs-ganesha, nfs-ganesha-vfs)'
complete -c stria -n "__fish_stria_using_subcommand gateway; and not __fish_seen_subcommand_from nfs smb help" -f -a "smb" -d 'SMB by Samba (packages samba, samba-vfs-modules)'
complete -c stria -n "__fish_stria_using_subcommand gateway; and not __fish_seen_subcommand_from nfs smb help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from nfs" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from nfs" -f -a "enable" -d 'Write configuration and unit for the exports given and those of before, and with --now start the server'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from nfs" -f -a "disable" -d 'Stop the server and remove what `enable` made, or take single exports away'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from nfs" -f -a "list" -d 'Show the exports'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from nfs" -f -a "status" -d 'Say whether the server runs and serves each export, and what to do if not. Exit code 1 if something is wrong'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from nfs" -f -a "check" -d 'Check that the mount and each directory can be served. The unit of the server does it before each start'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from nfs" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from smb" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from smb" -f -a "enable" -d 'Write configuration and unit for the shares given and those of before, and with --now start the server'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from smb" -f -a "disable" -d 'Stop the server and remove what `enable` made, or take single shares away'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from smb" -f -a "list" -d 'Show the shares'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from smb" -f -a "status" -d 'Say whether the server runs and serves each share, and what to do if not. Exit code 1 if something is wrong'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from smb" -f -a "check" -d 'Check that the mount and each directory can be served. The unit of the server does it before each start'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from smb" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "nfs" -d 'NFS 3 and 4 by NFS-Ganesha (packages nfs-ganesha, nfs-ganesha-vfs)'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "smb" -d 'SMB by Samba (packages samba, samba-vfs-modules)'
complete -c stria -n "__fish_stria_using_subcommand gateway; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "list" -d 'The plans that `stria bench run` knows by name: what each measures, and the study that it repeats'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "show" -d 'A plan at a scale on this machine: steps, points, phases, sizes, time, space, and the steps that it would skip'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "validate" -d 'Look for all that cannot work in a plan, at each of its scales, before anything is run. Exit code 1: something was found'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "quick" -d 'N-N and N-1 sequential, 4 KiB random, mdtest-like files, fsync and latency: each row four times, content verified'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "run" -d 'Run a plan in a directory of any mounted file system; the result is a directory with records, tables, figures and a report page'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "worker" -d 'Do what is read from standard input: what `stria bench run` starts'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "host" -d 'Start workers on this host for the coordinator that standard input comes from: what `--launch` starts'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "compare" -d 'Two results side by side: ratio with its 95 % interval, and a test whether it is more than chance. Exit code 1: a row is worse'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "report" -d 'Make the report of a result again from its records: a page that opens anywhere, CSV and JSON with every number'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "ior" -d 'IOR\'s command line: -a POSIX -w -r -b -t -s -F -o -e -C -k -i and others; -np N says how many workers. Prints IOR\'s table'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "mdtest" -d 'mdtest\'s command line: -d -n -I -b -z -L -u -F -D -w -e -y -N -i -C -T -E -r and others; -np N says how many workers. Prints its table'
complete -c stria -n "__fish_stria_using_subcommand bench; and not __fish_seen_subcommand_from list show validate quick run worker host compare report ior mdtest help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from show" -l scale -d 'Which of the plan\'s scales' -r -f -a "min\t''
small\t''
full\t''"
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from show" -l set -d 'A value in place of the scale\'s: threads=1,2,4 or total=8G. May be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from show" -l targets -d 'Files or devices for the steps that take them; nothing is written by `show`' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from show" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from show" -l toml -d 'The plan\'s file itself, as a start for one\'s own'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from validate" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from validate" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l out -d 'Keep the result, with a report page, in a new directory; else it is printed only' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l workers -d 'Worker processes [default: 4]' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l bytes -d 'Bytes of each sequential row, over all workers [default: 1G]' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l files -d 'Files of each small-file row, per worker [default: 2000]' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l repeats -d 'Samples of each row; the table shows their median and interval' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l budget -d 'Seconds: when they are over, nothing new is begun' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l hosts -d 'Hosts whose workers take part, with commas between: h1,h2. Without it the workers are on this machine' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l launch -d 'The command that reaches a host; {host} is its name. It is split into words as by a shell, and started without one [default: "ssh {host}"]' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l host-program -d 'Path of stria on the hosts [default: that of this program]' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l host-timeout -d 'A host that says nothing for so long fails its phase [default: 30]' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l device-dir -d 'A directory on the device that holds the data, to measure the device\'s limit; for mounts that do not tell their device' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l no-limits -d 'Do not measure the limits of device, processors and network first. The report then has no percentages of them'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -l quiet -d 'No progress on stderr'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -s j -l json -d 'JSON output: what `summary.json` has'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from quick" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l dir -d 'The directory to measure, which must exist; several times: one on each file system, for plans that use several at once. The run removes its files at the end. With hosts, {host} in it is the host\'s name' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l out -d 'Where the result goes: a new directory' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l scale -d 'min: under 2 minutes, to try it. small: under 15. full: as published' -r -f -a "min\t''
small\t''
full\t''"
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l set -d 'A variable of the plan, in place of what the scale says: threads=1,2,4' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l targets -d 'Files or devices for plans that measure devices. Their content is overwritten' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l repeats -d 'Samples of each point: N, or from N to M until their interval is narrow' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l budget -d 'Seconds for the whole plan: then nothing new is begun' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l hosts -d 'Hosts whose workers take part, with commas between: h1,h2. Without it the workers are on this machine' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l launch -d 'The command that reaches a host; {host} is its name. It is split into words as by a shell, and started without one [default: "ssh {host}"]' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l host-program -d 'Path of stria on the hosts [default: that of this program]' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l host-timeout -d 'A host that says nothing for so long fails its phase [default: 30]' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l sampler -d 'A command that prints a line of JSON with numbers now and then: they are recorded through the run. May be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l device-dir -d 'A directory on the device that holds the data, to measure the device\'s limit; for mounts that do not tell their device' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l yes -d 'Yes, what the targets hold may be overwritten'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l no-limits -d 'Do not measure the limits of device, processors and network first. The report then has no percentages of them'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -l quiet -d 'No progress on stderr'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -s j -l json -d 'JSON output: what `summary.json` has'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from worker" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from host" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from compare" -l tolerance -d 'Differences up to so many percent do not matter, however sure they are' -r
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from compare" -l json-to -d 'Write the comparison as JSON to a file, too' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from compare" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from compare" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from report" -l out -d 'Where to: a file ending in .html for the page alone, else a directory [default: beside the records of one result]' -r -F
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from report" -s j -l json -d 'JSON output: what `summary.json` has'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from report" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from ior" -s j -l json -d 'IOR 4\'s JSON, as `-O summaryFormat=JSON`; before IOR\'s own options'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from ior" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -s j -l json -d 'JSON output; before mdtest\'s own options'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "list" -d 'The plans that `stria bench run` knows by name: what each measures, and the study that it repeats'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "show" -d 'A plan at a scale on this machine: steps, points, phases, sizes, time, space, and the steps that it would skip'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "validate" -d 'Look for all that cannot work in a plan, at each of its scales, before anything is run. Exit code 1: something was found'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "quick" -d 'N-N and N-1 sequential, 4 KiB random, mdtest-like files, fsync and latency: each row four times, content verified'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "run" -d 'Run a plan in a directory of any mounted file system; the result is a directory with records, tables, figures and a report page'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "worker" -d 'Do what is read from standard input: what `stria bench run` starts'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "host" -d 'Start workers on this host for the coordinator that standard input comes from: what `--launch` starts'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "compare" -d 'Two results side by side: ratio with its 95 % interval, and a test whether it is more than chance. Exit code 1: a row is worse'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "report" -d 'Make the report of a result again from its records: a page that opens anywhere, CSV and JSON with every number'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "ior" -d 'IOR\'s command line: -a POSIX -w -r -b -t -s -F -o -e -C -k -i and others; -np N says how many workers. Prints IOR\'s table'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "mdtest" -d 'mdtest\'s command line: -d -n -I -b -z -L -u -F -D -w -e -y -N -i -C -T -E -r and others; -np N says how many workers. Prints its table'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand jobstats" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand jobstats" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand jobstats" -l by -d 'Rows' -r -f -a "job\t'A batch job, or a program and its user'
user\t'The user, by uid'
client\t'The mount: host, process and mount point'
target\t'The MDT or OST'
call\t'The kind of call: read, write, open, create and so on'"
complete -c stria -n "__fish_stria_using_subcommand jobstats" -l order -d 'Order of the rows' -r -f -a "time\t'Time that targets worked on requests'
bytes\t'Bytes read and written'
requests\t'Requests'"
complete -c stria -n "__fish_stria_using_subcommand jobstats" -s n -l rows -d 'Show so many rows; 0: all' -r
complete -c stria -n "__fish_stria_using_subcommand jobstats" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand jobstats" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c stria -n "__fish_stria_using_subcommand top" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand top" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand top" -l by -d 'Rows' -r -f -a "job\t'A batch job, or a program and its user'
user\t'The user, by uid'
client\t'The mount: host, process and mount point'
target\t'The MDT or OST'
call\t'The kind of call: read, write, open, create and so on'"
complete -c stria -n "__fish_stria_using_subcommand top" -l order -d 'Order of the rows' -r -f -a "time\t'Time that targets worked on requests'
bytes\t'Bytes read and written'
requests\t'Requests'"
complete -c stria -n "__fish_stria_using_subcommand top" -l interval -d 'Seconds of an interval' -r
complete -c stria -n "__fish_stria_using_subcommand top" -s n -l rows -d 'Show so many rows; 0: all. A terminal shows as many as it has lines' -r
complete -c stria -n "__fish_stria_using_subcommand top" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand top" -l once -d 'End after one interval'
complete -c stria -n "__fish_stria_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c stria -n "__fish_stria_using_subcommand why" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand why" -l mgs -d 'The management service of servers that run: NID[,NID...], with :/FSNAME if it has several file systems' -r
complete -c stria -n "__fish_stria_using_subcommand why" -l interval -d 'Seconds between the two moments' -r
complete -c stria -n "__fish_stria_using_subcommand why" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand why" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand lease; and not __fish_seen_subcommand_from list help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand lease; and not __fish_seen_subcommand_from list help" -f -a "list" -d 'Show which client holds a lease of which file\'s content, of which kind, or the exclusive lease of which directory, and whether another client waits for it. (`stria client list` counts leases of names.)'
complete -c stria -n "__fish_stria_using_subcommand lease; and not __fish_seen_subcommand_from list help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand lease; and __fish_seen_subcommand_from list" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand lease; and __fish_seen_subcommand_from list" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand lease; and __fish_seen_subcommand_from list" -l client -d 'Only leases of this session, as `stria client list` shows it' -r
complete -c stria -n "__fish_stria_using_subcommand lease; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand lease; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand lease; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show which client holds a lease of which file\'s content, of which kind, or the exclusive lease of which directory, and whether another client waits for it. (`stria client list` counts leases of names.)'
complete -c stria -n "__fish_stria_using_subcommand lease; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand mm; and not __fish_seen_subcommand_from mmgetstate mmlsfs help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mm; and not __fish_seen_subcommand_from mmgetstate mmlsfs help" -f -a "mmgetstate" -d 'Show the state of nodes'
complete -c stria -n "__fish_stria_using_subcommand mm; and not __fish_seen_subcommand_from mmgetstate mmlsfs help" -f -a "mmlsfs" -d 'Show attributes of file systems'
complete -c stria -n "__fish_stria_using_subcommand mm; and not __fish_seen_subcommand_from mmgetstate mmlsfs help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmgetstate" -l mgs -d 'The management service: NID[,NID...]; without it that of a mount on this host' -r
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmgetstate" -s a -d 'All nodes; without it those of this host\'s name'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmgetstate" -s L -d 'More columns: nodes that are up, and all'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmgetstate" -s Y -d 'Lines with colons, for programs'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmgetstate" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -l mgs -d 'The management service: NID[,NID...]; without it that of a mount on this host' -r
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s f -d 'Show only: minimum fragment (subblock) size in bytes'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s m -d 'Show only: default number of metadata replicas'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s M -d 'Show only: maximum number of metadata replicas'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s r -d 'Show only: default number of data replicas'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s R -d 'Show only: maximum number of data replicas'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s Q -d 'Show only: quotas enforced'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s B -d 'Show only: block size'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s V -d 'Show only: file system version'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s T -d 'Show only: default mount point'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s a
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s A
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s d
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s D
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s E
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s i
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s I
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s j
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s k
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s K
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s L
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s n
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s o
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s P
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s S
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s t
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s u
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s W
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s z
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s Y -d 'Lines with colons, for programs'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from mmlsfs" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from help" -f -a "mmgetstate" -d 'Show the state of nodes'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from help" -f -a "mmlsfs" -d 'Show attributes of file systems'
complete -c stria -n "__fish_stria_using_subcommand mm; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand client; and not __fish_seen_subcommand_from list evict help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand client; and not __fish_seen_subcommand_from list evict help" -f -a "list" -d 'Show each client: its session, when it was heard of last, and how much it may cache'
complete -c stria -n "__fish_stria_using_subcommand client; and not __fish_seen_subcommand_from list evict help" -f -a "evict" -d 'End a client\'s session, as if the client were dead: its leases, locks and unlinked files end, and its open files are `EIO` there. The client goes on with a new session. Without --yes it only shows what would end'
complete -c stria -n "__fish_stria_using_subcommand client; and not __fish_seen_subcommand_from list evict help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from list" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from list" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from evict" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from evict" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from evict" -l session -d 'The session, as `stria client list` shows it' -r
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from evict" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from evict" -l yes -d 'Do it'
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from evict" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show each client: its session, when it was heard of last, and how much it may cache'
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from help" -f -a "evict" -d 'End a client\'s session, as if the client were dead: its leases, locks and unlinked files end, and its open files are `EIO` there. The client goes on with a new session. Without --yes it only shows what would end'
complete -c stria -n "__fish_stria_using_subcommand client; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand waiters" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand waiters" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand waiters" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand waiters" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mdt; and not __fish_seen_subcommand_from bench backup restore stat bench-client help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mdt; and not __fish_seen_subcommand_from bench backup restore stat bench-client help" -f -a "bench" -d 'Measure the metadata engine on a device, beside ext4. DEVICE IS OVERWRITTEN: all that it holds is lost'
complete -c stria -n "__fish_stria_using_subcommand mdt; and not __fish_seen_subcommand_from bench backup restore stat bench-client help" -f -a "backup" -d 'Write all records of the MDT as they are now to a file, while it serves or while it is stopped. Objects are not in it'
complete -c stria -n "__fish_stria_using_subcommand mdt; and not __fish_seen_subcommand_from bench backup restore stat bench-client help" -f -a "restore" -d 'Make an MDT from a backup, in the place of one that is lost. What came after the backup is not in it: see `stria fsck` afterwards'
complete -c stria -n "__fish_stria_using_subcommand mdt; and not __fish_seen_subcommand_from bench backup restore stat bench-client help" -f -a "stat" -d 'Show what MDTs hold: their records, the room that these take, and how large content may be that lies with them. Shows also their memory, the log, and how long changes waited for what other clients cache'
complete -c stria -n "__fish_stria_using_subcommand mdt; and not __fish_seen_subcommand_from bench backup restore stat bench-client help" -f -a "bench-client" -d 'Asks a server by TCP; started by `bench`'
complete -c stria -n "__fish_stria_using_subcommand mdt; and not __fish_seen_subcommand_from bench backup restore stat bench-client help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench" -l rows -d 'Only rows whose name contains one of these, separated by commas' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench" -l pairs -d 'Pairs of turns; each gives one sample of a ratio' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench" -l seconds -d 'Seconds of each row in each turn' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench" -l entries -d 'Files that are there before the rows' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench" -l mdt-cache -d 'Memory limit for the MDT\'s records [default: a quarter of the machine\'s, at least 64M]' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench" -l no-ext4 -d 'Only the MDT\'s side'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench" -l addresses -d 'Say where in memory what requests share lies: `perf stat -e mem:ADDRESS/8:w -p PID` counts who writes it'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench" -l force -d 'Overwrite a device that holds something'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from backup" -l dir -d 'The directory that `stria up` was given' -r -F
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from backup" -l mgs -d 'The management service of servers that run, in place of --dir: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from backup" -l mount -d 'A path on a mount, in place of --dir' -r -F
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from backup" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from backup" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from restore" -l size -d 'Make a sparse file of this size, where there is none yet' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from restore" -l force -d 'Overwrite what the device holds. It is lost'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from restore" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from restore" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from stat" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from stat" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from stat" -l watch -d 'Show rates again and again, each over so many seconds' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from stat" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l address -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l talk -r -f -a "stat\t''
create\t''
echo\t''"
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l connections -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l together -d 'Requests of a frame' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l seconds -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l seed -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l entries -d 'Files of the tree' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l files-max -d 'Files that may be made' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l session -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l sequence -d 'The slots\' sequences begin after this one' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l request-bytes -d 'Of bodies' -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -l reply-bytes -r
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from bench-client" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from help" -f -a "bench" -d 'Measure the metadata engine on a device, beside ext4. DEVICE IS OVERWRITTEN: all that it holds is lost'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from help" -f -a "backup" -d 'Write all records of the MDT as they are now to a file, while it serves or while it is stopped. Objects are not in it'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from help" -f -a "restore" -d 'Make an MDT from a backup, in the place of one that is lost. What came after the backup is not in it: see `stria fsck` afterwards'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Show what MDTs hold: their records, the room that these take, and how large content may be that lies with them. Shows also their memory, the log, and how long changes waited for what other clients cache'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from help" -f -a "bench-client" -d 'Asks a server by TCP; started by `bench`'
complete -c stria -n "__fish_stria_using_subcommand mdt; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand ost; and not __fish_seen_subcommand_from bench space stat waste help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand ost; and not __fish_seen_subcommand_from bench space stat waste help" -f -a "bench" -d 'Measure the OST engine on a device, beside fio. DEVICE IS OVERWRITTEN: all that it holds is lost'
complete -c stria -n "__fish_stria_using_subcommand ost; and not __fish_seen_subcommand_from bench space stat waste help" -f -a "space" -d 'Show how the space of OSTs is used: free, used, waiting, reserved, granted to clients; waste by sub-block class; how free space and objects are fragmented. It looks at every object, a few at a time; nobody waits for it'
complete -c stria -n "__fish_stria_using_subcommand ost; and not __fish_seen_subcommand_from bench space stat waste help" -f -a "stat" -d 'Show what OSTs wrote since their start: sizes of device writes by purpose, write amplification, the small-write log, the index in memory, flushes, and drive writes per day against what the drive is rated for'
complete -c stria -n "__fish_stria_using_subcommand ost; and not __fish_seen_subcommand_from bench space stat waste help" -f -a "waste" -d 'Compare what a mix of files takes on an OST with sub-blocks as large as each write needs, and with fixed ones as other file systems have them. Sizes are log-uniform: each doubling has as many files. Nothing is written'
complete -c stria -n "__fish_stria_using_subcommand ost; and not __fish_seen_subcommand_from bench space stat waste help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -l log-device -d 'Keep the engine\'s log on this device or file, which is OVERWRITTEN as DEVICE is, and refused alike. fio works on DEVICE alone' -r -F
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -l rows -d 'Only rows whose name contains one of these, separated by commas' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -l pairs -d 'Pairs of turns; each gives one sample of a ratio' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -l seconds -d 'Seconds of each row in each turn' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -l soak-seconds -d 'Seconds of each soak; of an OST that is full or aged, a quarter of it' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -l size -d 'Bytes of the object that is worked on [default: a quarter of the device, 2G at most]' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -l states -d 'States of the OST before the rows. Each other state is compared with fresh' -r -f -a "fresh\t'Just made'
full\t'80 % of its space taken, the object\'s included'
aged\t'After many creates, overwrites and deletes of small objects'"
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -l age -d 'Creates, overwrites and deletes that make an OST an aged one' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -l no-fio -d 'Only the engine\'s side'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -l force -d 'Overwrite a device that holds something'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from bench" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from space" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from space" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from space" -l target -l ost -d 'Only this OST, by index; may be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from space" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from space" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from stat" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from stat" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from stat" -l target -l ost -d 'Only this OST, by index; may be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from stat" -l watch -d 'Show rates again and again, each over so many seconds' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from stat" -l rated-dwpd -d 'Drive writes per day that the device is rated for' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from stat" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from waste" -l files -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from waste" -l min -d 'Smallest file' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from waste" -l max -d 'Largest file' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from waste" -l streams -d 'Files written at once' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from waste" -l sub-blocks -d 'Fixed sub-blocks to compare with: powers of two, 8K to 8M, separated by commas' -r
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from waste" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from waste" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from help" -f -a "bench" -d 'Measure the OST engine on a device, beside fio. DEVICE IS OVERWRITTEN: all that it holds is lost'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from help" -f -a "space" -d 'Show how the space of OSTs is used: free, used, waiting, reserved, granted to clients; waste by sub-block class; how free space and objects are fragmented. It looks at every object, a few at a time; nobody waits for it'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Show what OSTs wrote since their start: sizes of device writes by purpose, write amplification, the small-write log, the index in memory, flushes, and drive writes per day against what the drive is rated for'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from help" -f -a "waste" -d 'Compare what a mix of files takes on an OST with sub-blocks as large as each write needs, and with fixed ones as other file systems have them. Sizes are log-uniform: each doubling has as many files. Nothing is written'
complete -c stria -n "__fish_stria_using_subcommand ost; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand net; and not __fish_seen_subcommand_from list show ping stat trace help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand net; and not __fish_seen_subcommand_from list show ping stat trace help" -f -a "list" -d 'List the nets of a cluster: how many nodes and routers are on each, and whether this host is'
complete -c stria -n "__fish_stria_using_subcommand net; and not __fish_seen_subcommand_from list show ping stat trace help" -f -a "show" -d 'Show the NIDs on each net, and whether they answer to this host. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_using_subcommand net; and not __fish_seen_subcommand_from list show ping stat trace help" -f -a "ping" -d 'Ask the servers at these NIDs whether they answer, by the way that this host\'s nets and routes give. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_using_subcommand net; and not __fish_seen_subcommand_from list show ping stat trace help" -f -a "stat" -d 'Show, for a mount and for each server, its connections by peer: frames and bytes since the process began, requests under way, how often requests waited, connections opened and refused'
complete -c stria -n "__fish_stria_using_subcommand net; and not __fish_seen_subcommand_from list show ping stat trace help" -f -a "trace" -d 'Show frames that a mount and the servers send and receive, from now on until Ctrl-C. Tracing is off otherwise, and goes off 10 s after the last look. Content is not shown'
complete -c stria -n "__fish_stria_using_subcommand net; and not __fish_seen_subcommand_from list show ping stat trace help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from list" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from list" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from show" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from show" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from show" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from ping" -l mgs -d 'A management service whose map gives the routes' -r
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from ping" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from ping" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from stat" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from stat" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from stat" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from trace" -l dir -d 'The directory of a running `stria up`' -r -F
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from trace" -l mgs -d 'The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several' -r
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from trace" -l process -d 'Only processes whose name contains this: mount, management, or a server\'s name' -r
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from trace" -s n -l count -d 'End after so many frames' -r
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from trace" -l seconds -d 'End after so many seconds' -r
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from trace" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from trace" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the nets of a cluster: how many nodes and routers are on each, and whether this host is'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show the NIDs on each net, and whether they answer to this host. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "ping" -d 'Ask the servers at these NIDs whether they answer, by the way that this host\'s nets and routes give. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Show, for a mount and for each server, its connections by peer: frames and bytes since the process began, requests under way, how often requests waited, connections opened and refused'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "trace" -d 'Show frames that a mount and the servers send and receive, from now on until Ctrl-C. Tracing is off otherwise, and goes off 10 s after the last look. Content is not shown'
complete -c stria -n "__fish_stria_using_subcommand net; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand ping" -l mgs -d 'A management service whose map gives the routes' -r
complete -c stria -n "__fish_stria_using_subcommand ping" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand ping" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand route; and not __fish_seen_subcommand_from add del list check help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand route; and not __fish_seen_subcommand_from add del list check help" -f -a "add" -d 'Add a route to the map. Hosts learn of it within a second'
complete -c stria -n "__fish_stria_using_subcommand route; and not __fish_seen_subcommand_from add del list check help" -f -a "del" -d 'Remove a route from the map. Connections by it go on until they end'
complete -c stria -n "__fish_stria_using_subcommand route; and not __fish_seen_subcommand_from add del list check help" -f -a "list" -d 'List the routes of the map'
complete -c stria -n "__fish_stria_using_subcommand route; and not __fish_seen_subcommand_from add del list check help" -f -a "check" -d 'Try every way from this host: each router by itself, and a server behind it. Exit code 1 if one does not work'
complete -c stria -n "__fish_stria_using_subcommand route; and not __fish_seen_subcommand_from add del list check help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from add" -l via -d 'NID of the router on the near net' -r
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from add" -l priority -d 'Routes of the lowest number are taken while they work; those of the same number share the load' -r
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from add" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from add" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from del" -l via -d 'NID of the router on the near net' -r
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from del" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from del" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from del" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from list" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from list" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from list" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from check" -l mgs -d 'The management service: NID[,NID...]' -r
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from check" -l mount -d 'A mount of the cluster on this host' -r -F
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from check" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add a route to the map. Hosts learn of it within a second'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from help" -f -a "del" -d 'Remove a route from the map. Connections by it go on until they end'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the routes of the map'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from help" -f -a "check" -d 'Try every way from this host: each router by itself, and a server behind it. Exit code 1 if one does not work'
complete -c stria -n "__fish_stria_using_subcommand route; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand mount" -s o -d 'Mount options, separated by commas' -r
complete -c stria -n "__fish_stria_using_subcommand mount" -l config -d 'Configuration file (TOML); unknown keys are refused' -r -F
complete -c stria -n "__fish_stria_using_subcommand mount" -l fake -d 'Check source and options, and mount nothing (`mount -f`)'
complete -c stria -n "__fish_stria_using_subcommand mount" -l helper -d 'Called by mount(8)'
complete -c stria -n "__fish_stria_using_subcommand mount" -l foreground -d 'Stay in the foreground (always so with --config)'
complete -c stria -n "__fish_stria_using_subcommand mount" -l quiet -d 'Say nothing of a mount that went well, as mount(8) wants it of its helpers'
complete -c stria -n "__fish_stria_using_subcommand mount" -l detached -d 'In the background: words go to the waiting parent'
complete -c stria -n "__fish_stria_using_subcommand mount" -l print-config -d 'Print the effective configuration with defaults and comments, and end. Without --config: an example'
complete -c stria -n "__fish_stria_using_subcommand mount" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and not __fish_seen_subcommand_from ost mdt help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and not __fish_seen_subcommand_from ost mdt help" -f -a "ost" -d 'Make an object storage target: the log, two checkpoint slots, and all the rest for data'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and not __fish_seen_subcommand_from ost mdt help" -f -a "mdt" -d 'Make a metadata target: a root directory, and the whole device for the log and two checkpoint slots'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and not __fish_seen_subcommand_from ost mdt help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from ost" -l fsname -d 'Name of the file system that it will belong to' -r
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from ost" -l index -d 'Its number among the file system\'s targets of its kind [default: the lowest free one when it registers]. A second member has that of the target that it doubles' -r
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from ost" -l log-size -d 'Size of the log [default: by the size of the device; with --log-device all of that, up to 256 MiB]' -r
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from ost" -l size -d 'Make a sparse file of this size, where there is none yet' -r
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from ost" -l sub-block -d 'Give space out in fixed pieces of this size, as some other file systems do: a power of two, 4K to 8M. 4K: as large as each write needs. For comparisons: space promised to files may be short with fixed ones [default: 4K]' -r
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from ost" -l log-device -d 'Keep the log on this device or file and nothing else: a faster one, for small writes and flushes' -r -F
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from ost" -l force -d 'Overwrite what the device holds. It is lost'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from ost" -l dry-run -d 'Check everything, say what would be made, and write nothing'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from ost" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from ost" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from mdt" -l fsname -d 'Name of the file system that it will belong to' -r
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from mdt" -l index -d 'Its number among the file system\'s targets of its kind [default: the lowest free one when it registers]. A second member has that of the target that it doubles' -r
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from mdt" -l log-size -d 'Size of the log [default: by the size of the device; with --log-device all of that, up to 256 MiB]' -r
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from mdt" -l size -d 'Make a sparse file of this size, where there is none yet' -r
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from mdt" -l force -d 'Overwrite what the device holds. It is lost'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from mdt" -l dry-run -d 'Check everything, say what would be made, and write nothing'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from mdt" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from mdt" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from help" -f -a "ost" -d 'Make an object storage target: the log, two checkpoint slots, and all the rest for data'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from help" -f -a "mdt" -d 'Make a metadata target: a root directory, and the whole device for the log and two checkpoint slots'
complete -c stria -n "__fish_stria_using_subcommand mkfs; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand mgs; and not __fish_seen_subcommand_from move rebuild help" -l config -d 'Configuration file (TOML); unknown keys are refused' -r -F
complete -c stria -n "__fish_stria_using_subcommand mgs; and not __fish_seen_subcommand_from move rebuild help" -l print-config -d 'Print the effective configuration with defaults and comments, and end. Without --config: an example'
complete -c stria -n "__fish_stria_using_subcommand mgs; and not __fish_seen_subcommand_from move rebuild help" -l format -d 'Make an empty cluster map if there is none: once, for a new cluster. Without, a missing map is an error. In etcd: refused if one is there'
complete -c stria -n "__fish_stria_using_subcommand mgs; and not __fish_seen_subcommand_from move rebuild help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mgs; and not __fish_seen_subcommand_from move rebuild help" -f -a "move" -d 'Copy the cluster map from a directory into etcd. The management service must be stopped. Refused if etcd has a map. The directory stays as it is: keep it as a backup, and start no management service with it any more'
complete -c stria -n "__fish_stria_using_subcommand mgs; and not __fish_seen_subcommand_from move rebuild help" -f -a "rebuild" -d 'Make a cluster map that was lost with all its copies, from the superblocks of all targets: `stria target show` prints them on each server. Refused if a map is there. Targets keep ids, indexes and content. File systems get new keys. Routes, nodemaps and revocation lists must be given again, and clients mount anew. A mirror of two with one member given makes no map, unless --without gives the other member up. Neither does a gap in the indexes of targets'
complete -c stria -n "__fish_stria_using_subcommand mgs; and not __fish_seen_subcommand_from move rebuild help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from move" -l from -d 'The directory of the map: `dir` of the old configuration' -r -F
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from move" -l config -d 'The new configuration of `stria mgs`, with `etcd`' -r -F
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from move" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from rebuild" -l config -d 'The configuration of `stria mgs`, with `dir` or `etcd`' -r -F
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from rebuild" -l without -d 'Give up the missing member of this mirror, such as home-OST0003, or this missing target: what only that one has is lost. May be given several times' -r
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from rebuild" -l confirm -d 'With --without: do it. The token is that of --dry-run' -r
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from rebuild" -l dry-run -d 'Show the map that would be made. Nothing is written'
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from rebuild" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from help" -f -a "move" -d 'Copy the cluster map from a directory into etcd. The management service must be stopped. Refused if etcd has a map. The directory stays as it is: keep it as a backup, and start no management service with it any more'
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from help" -f -a "rebuild" -d 'Make a cluster map that was lost with all its copies, from the superblocks of all targets: `stria target show` prints them on each server. Refused if a map is there. Targets keep ids, indexes and content. File systems get new keys. Routes, nodemaps and revocation lists must be given again, and clients mount anew. A mirror of two with one member given makes no map, unless --without gives the other member up. Neither does a gap in the indexes of targets'
complete -c stria -n "__fish_stria_using_subcommand mgs; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand mds" -l config -d 'Configuration file (TOML); unknown keys are refused' -r -F
complete -c stria -n "__fish_stria_using_subcommand mds" -l groups -d 'Source of a user\'s groups [default: client, or what the file says]' -r -f -a "client\t'The client\'s kernel'
server\t'This server\'s user database, looked up every 10 s; what clients say of groups gains them nothing'"
complete -c stria -n "__fish_stria_using_subcommand mds" -l root-squash -d 'Clients\' root counts as this user' -r
complete -c stria -n "__fish_stria_using_subcommand mds" -l print-config -d 'Print the effective configuration with defaults and comments, and end. Without --config: an example'
complete -c stria -n "__fish_stria_using_subcommand mds" -l format -d 'Make and format the target if its device is missing (then `size` is needed) or blank: once, for a new target. Without, such a device is an error'
complete -c stria -n "__fish_stria_using_subcommand mds" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c stria -n "__fish_stria_using_subcommand oss" -l config -d 'Configuration file (TOML); unknown keys are refused' -r -F
complete -c stria -n "__fish_stria_using_subcommand oss" -l print-config -d 'Print the effective configuration with defaults and comments, and end. Without --config: an example'
complete -c stria -n "__fish_stria_using_subcommand oss" -l format -d 'Make and format targets whose devices are missing (then `size` is needed) or blank: once, for new targets. Without, such a device is an error'
complete -c stria -n "__fish_stria_using_subcommand oss" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand router; and not __fish_seen_subcommand_from stat drain resume help" -l config -d 'Configuration file (TOML); unknown keys are refused' -r -F
complete -c stria -n "__fish_stria_using_subcommand router; and not __fish_seen_subcommand_from stat drain resume help" -l print-config -d 'Print the effective configuration with defaults and comments, and end. Without --config: an example'
complete -c stria -n "__fish_stria_using_subcommand router; and not __fish_seen_subcommand_from stat drain resume help" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand router; and not __fish_seen_subcommand_from stat drain resume help" -f -a "stat" -d 'Show a router\'s circuits by nets, file system and host: MB/s from the host and to it, stalls, and the processor time. Without --interval the rates are means since the router\'s start'
complete -c stria -n "__fish_stria_using_subcommand router; and not __fish_seen_subcommand_from stat drain resume help" -f -a "drain" -d 'Take no new circuits and end those that are idle, before the router is stopped. Hosts take other routers, and no program sees an error'
complete -c stria -n "__fish_stria_using_subcommand router; and not __fish_seen_subcommand_from stat drain resume help" -f -a "resume" -d 'Take new circuits again after a drain'
complete -c stria -n "__fish_stria_using_subcommand router; and not __fish_seen_subcommand_from stat drain resume help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from stat" -l dir -d 'The key `dir` of the router\'s configuration' -r -F
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from stat" -l interval -d 'Show the rates of each so many seconds, until it is interrupted' -r
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from stat" -l count -d 'End after so many' -r
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from stat" -l history -d 'Show each of the last so many seconds, an hour at most' -r
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from stat" -s j -l json -d 'JSON output. With --interval or --history one object on each line'
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from stat" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from drain" -l dir -d 'The key `dir` of the router\'s configuration' -r -F
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from drain" -l within -d 'Seconds after which busy circuits are ended too; their requests are sent again by another way' -r
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from drain" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from resume" -l dir -d 'The key `dir` of the router\'s configuration' -r -F
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from help" -f -a "stat" -d 'Show a router\'s circuits by nets, file system and host: MB/s from the host and to it, stalls, and the processor time. Without --interval the rates are means since the router\'s start'
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from help" -f -a "drain" -d 'Take no new circuits and end those that are idle, before the router is stopped. Hosts take other routers, and no program sees an error'
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from help" -f -a "resume" -d 'Take new circuits again after a drain'
complete -c stria -n "__fish_stria_using_subcommand router; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand completions" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand bundle" -l dir -d 'The directory that `stria up` was given. Without: every file system that is mounted here' -r -F
complete -c stria -n "__fish_stria_using_subcommand bundle" -l mgs -d 'The management service, with no mount here: NID[,NID...], and :/FSNAME for one of its file systems' -r
complete -c stria -n "__fish_stria_using_subcommand bundle" -l out -d 'The archive [default: stria-bundle-HOST-TIME.tar.gz here]' -r -F
complete -c stria -n "__fish_stria_using_subcommand bundle" -l also -d 'Folders of logs and configurations besides /var/log/stria, /run/stria and /etc/stria' -r -F
complete -c stria -n "__fish_stria_using_subcommand bundle" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand explain" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand version" -s j -l json -d 'JSON output'
complete -c stria -n "__fish_stria_using_subcommand version" -s h -l help -d 'Print help'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "up" -d 'Make a file system in a directory (or start the one that is there), serve it and mount it'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "down" -d 'Stop the cluster in a directory: unmount, stop its servers, wait until they are gone'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "status" -d 'Show what runs: process, mount, and each target with its state, space, sessions and log. Works on a stopped cluster too'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "health" -d 'Show whether all is well, and what is not: targets, mirrors, damage, space, logs, slow disks and links, management services. With --hints also the next step for each, and what would make the file system safer'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "dash" -d 'Serve a page of a file system to browsers on this host: health and the next steps, space, throughput over a week, top lists, mirrors, tasks, damage. It is off unless it is started. It listens on loopback only, and asks for a token'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "df" -d 'Show space or inodes of each MDT and OST, in the columns of `lfs df`'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "du" -d 'Show what directories hold in all, as `du -s` does, at once however much that is. A file with several links counts where its first is; symlinks are not followed. What other mounts have written in the last second may be missing'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "find" -d 'Find files below PATH by tests, as `find` and `lfs find` do. Paths come in no order: several threads search. Only the file system of PATH is searched. Exit code 1 if something could not be read'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "index" -d 'Keep an index of a file system for `stria find -db`: names, sizes, owners, times and striping in an SQLite file. `stria index run` scans once and then follows the changelog; `stria index status` shows how far it is; `stria index analytics` writes a page of what is there. Each has `--help`'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "setstripe" -d 'Set the striping of an empty file (made if it does not exist) or of a directory, whose new files inherit it. More stripes than there are OSTs are taken, with a warning'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "getstripe" -d 'Show the striping of files; of a directory, what new files in it get, and the striping of those in it. A file whose content is still inline shows what it gets when it grows'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "id2path" -d 'Show the paths of files by their ids (inode numbers). A file with several links has several. Exit code 1 if an id has none'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "path2id" -d 'Show the ids of files: their inode numbers, as logs, damage lists and `stria id2path` have them. Symlinks are not followed'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "fsck" -d 'Check a file system, running, or stopped unless it is a pair: names, link counts, sums, lost and leaked objects, sizes. Nothing is written without --repair'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "damage" -d 'List damaged files (checksum mismatches, missing objects, medium errors), or forget what is known of them'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "scrub" -d 'Read every page of the OSTs, and all records of the MDTs, from their media and check them, in the background; bad pages are listed by `stria damage list`'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "task" -d 'Show, pause and resume work in the background: fills of mirrors, drains of OSTs, scrubs, comparisons of mirrors\' members'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "get-param" -d 'Show values of parameters at running targets and mounts, one TARGET.NAME=VALUE a line'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "set-param" -d 'Set parameters of targets and mounts. The values hold until the targets\' servers or this mount end; with -P they are kept in the cluster map, and also targets that are down or new take them, and all mounts'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "list-param" -d 'List the parameters of targets and mounts: their names, values that can be set, and meanings'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "changelog" -d 'All changes of a file system, in order and without a gap: for backups, indexes, mirrors and policies. Register a consumer, read, and acknowledge the changes that it has processed; the MDT keeps changes until all consumers have acknowledged them'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "cluster" -d 'Issue, revoke and renew the certificates of a cluster\'s nodes'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "fs" -d 'List, make and remove the file systems of a management service'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "target" -d 'Retire an OST, take a target out of a cluster for good, give a mirror another device for a lost one, or look at a superblock'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "node" -d 'Look at the hosts of a cluster\'s servers, and take one out'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "mirror" -d 'Show mirrors: groups of targets on different servers with the same content'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "server" -d 'Move the primaries of mirrors from a server to others, before it is stopped, and back'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "nodemap" -d 'Ban clients, let them only read or see one directory, squash or map their users: by certificate or address'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "gateway" -d 'Serve a mounted file system to NFS and SMB clients, by NFS-Ganesha and Samba'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "bench" -d 'Measure a directory: sequential, random, many small files, fsync, latency. Works on any file system'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "jobstats" -d 'Show what jobs, users, clients and targets have asked of the servers since these were started: requests, bytes, errors, and the time that the servers took. A job is that of the scheduler (SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, FLUX_JOB_ID or JOB_ID in the program\'s environment), otherwise the program\'s name and user, as tar.1000. A job that is idle for ten minutes goes to (others)'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "top" -d 'Show what jobs, users, clients, targets or calls ask of the servers now: rates of each interval, until it is interrupted. BUSY is the time that servers work on requests: 300 % are three at once. On a terminal keys choose rows and order; the last line tells them. A pipe gets a table for each interval'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "why" -d 'Tell the slow part of what a path, a job or a client does now: the program, the network, the queue of a server, its processors, locks of other clients, a log that is full, the other member of a mirror, or a drive. The servers count what each request waits for; this command compares two moments. Meanwhile it looks which files\' leases are waited for, and which clients hold them. A path stands for all requests to its MDT and its OSTs, whichever program makes them'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "lease" -d 'Look at leases: what clients may cache of files'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "lfs" -d 'Lustre\'s `lfs`, for scripts and hands that know it: df, find, getstripe, setstripe, fid2path, path2fid, quota and check, with the columns and options that they have there. A link named `lfs` to this program does the same. A file id is one number here. In getstripe\'s table of objects the number of an object is that of its file'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "mm" -d 'Storage Scale\'s `mmgetstate` and `mmlsfs`, for scripts and hands that know them: the same columns, and with -Y the same lines with colons. The management service is that of --mgs, or of a mount on this host. A node is a host: all server processes of one name, with the lowest of their numbers. It is "active" if all of its processes answer, "down" if one does not, and "unknown" if it has no target or refuses to tell'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "client" -d 'Look at the clients of a file system, and end one that hangs'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "waiters" -d 'Show what waits for a lease, for how long, and which clients hold it. Exit code 1 if something waits'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "mdt" -d 'Look at MDTs closely: what running ones hold, and in memory; what the metadata engine makes of a device; backups'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "ost" -d 'Look at OSTs closely: what running ones wrote and how their space is used; what the engine makes of a device'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "net" -d 'Look at nets and connections: which NIDs there are and whether they answer, what went over connections, and each frame as it goes'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "ping" -d 'Ask the servers at these NIDs whether they answer, by the way that this host\'s nets and routes give. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "route" -d 'Show, add, remove and check routes: which router leads from one net to another'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "mount" -d 'Mount a file system: NID:/fsname on a directory, or as a configuration file says'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "mkfs" -d 'Make a target on a block device or in a file: an OST for `stria oss`, an MDT for `stria mds`'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "mgs" -d 'Run the management service: keeper of the cluster map, which servers and clients ask first'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "mds" -d 'Run a metadata server with one MDT; its device is formatted only with --format, foreign content is refused'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "oss" -d 'Run an object storage server, one OST per device; devices are formatted only with --format, foreign content is refused'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "router" -d 'Run a router, which joins nets: hosts on one reach servers on another through it. Or look at one that runs here'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "completions" -d 'Print completions for a shell: commands, options, and the values of options that have a set of them'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "bundle" -d 'Collect what a supporter asks for in one archive: versions, health, targets, mirrors, jobs, recent damage, configurations, the ends of logs, this host. Lines with secrets are left out, and keys and certificates are not taken. File and host names are in it: look before you send it'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "explain" -d 'Explain a term, an error message, a code such as ENOSPC or a metric, as the documents of this release do'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "version" -d 'Print the version, and the frame and handshake versions that peers must share'
complete -c stria -n "__fish_stria_using_subcommand help; and not __fish_seen_subcommand_from up down status health dash df du find index setstripe getstripe id2path path2id fsck damage scrub task get-param set-param list-param changelog cluster fs target node mirror server nodemap gateway bench jobstats top why lease lfs mm client waiters mdt ost net ping route mount mkfs mgs mds oss router completions bundle explain version help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from damage" -f -a "list" -d 'List known damage. Exit code 1 if there is any that was not repaired'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from damage" -f -a "clear" -d 'Forget damage records: of one file (PATH), or of all (--dir). Bytes that are still bad are found again when read'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from scrub" -f -a "status" -d 'Show state, progress and the last pass of each target. Exit code 1 if the last or the present pass found bad pages'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from scrub" -f -a "start" -d 'Begin a pass over all objects and records; where one runs already, it goes on. That of an OST goes on after a restart, too'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from scrub" -f -a "pause" -d 'Hold a pass where it is, until `resume`'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from scrub" -f -a "resume" -d 'Let a paused pass go on'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from scrub" -f -a "stop" -d 'End a pass before its end. The next begins anew'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from scrub" -f -a "set" -d 'Set how fast it reads on OSTs and how often it begins by itself there. It is kept on the OST'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from task" -f -a "list" -d 'Show what goes on and what is paused, how far it is, and what remains to be done by hand'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from task" -f -a "pause" -d 'Pause tasks: resync:TARGET, drain:TARGET, scrub:TARGET or verify:TARGET. It lasts until it is taken back, also over restarts. The comparison of an MDT is not paused: it keeps a snapshot in memory'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from task" -f -a "resume" -d 'Let paused tasks go on'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from changelog" -f -a "register" -d 'Make a consumer: from now on changes are kept for it. They take an eighth of the MDT\'s room at most: a consumer that is too far behind then loses the oldest, and is told'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from changelog" -f -a "deregister" -d 'Forget a consumer, and what is kept for it alone'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from changelog" -f -a "read" -d 'Show changes that the consumer has not acknowledged, as far as a power loss of the MDT cannot take them back. Exit code 1 if some were lost'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from changelog" -f -a "ack" -d 'The consumer is done with all changes up to NUMBER'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from changelog" -f -a "list" -d 'Show the consumers, and what is kept for them. Exit code 1 if one has lost changes'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from cluster" -f -a "init" -d 'Make the CA of a new cluster, and the first certificates: an administrator\'s and a server\'s for this host'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from cluster" -f -a "add-node" -d 'Issue the certificate of a new node: a server, unless --role says otherwise'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from cluster" -f -a "issue" -d 'Issue a certificate again, before it expires or after its key was lost. The earlier one stays valid until it is revoked'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from cluster" -f -a "revoke" -d 'Revoke the certificates of a node, or one by its serial. With --mgs the cluster refuses them at once'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from cluster" -f -a "publish" -d 'Put the revocation lists of the CA directory into the cluster map: all servers, routers and mounts take them at once'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from cluster" -f -a "rotate" -d 'Make a new CA beside the current one, and issue all valid certificates again; later, with --finish, end the earlier CA'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from cluster" -f -a "list" -d 'Show all certificates. Exit code 1 if one expires within 30 days, or the CA within a year'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from fs" -f -a "create" -d 'Make a file system, to which targets then register in any order. Without it the first MDT with a new name makes its file system'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from fs" -f -a "list" -d 'Show each file system: its targets, those that do not answer, and its capacity. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from fs" -f -a "remove" -d 'Remove a file system with all its targets from the cluster map. Their devices are not touched. Its servers must be stopped. Without --confirm it only shows what would be lost, and ends with exit code 1'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from target" -f -a "add" -d 'Make a new OST on this host, or a second member for one that has none. It makes the device, and tells which line of the server\'s configuration takes it'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from target" -f -a "drain" -d 'Retire an OST: it gets no new objects, and the content of all files there moves to other OSTs while programs use them. It may be stopped (Ctrl-C) and run again at any time'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from target" -f -a "undrain" -d 'Take the mark of a drain back: the OST takes new objects again. Content that has moved stays there'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from target" -f -a "remove" -d 'Remove an OST from the cluster map, with the bytes of files there. Its device is not touched. Without --confirm it only shows what would be lost, and ends with exit code 1. An MDT goes with its file system (`stria fs remove`). A member of a mirror of two goes alone, by its id, if it is out: no file loses bytes'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from target" -f -a "replace" -d 'Replace the device of a member that is out. On the host with the new device: makes the target there, and takes the lost member out of the cluster map. The server that gets the device then has it filled by the other member, beside the work of clients'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from target" -f -a "show" -d 'Print what the superblocks of devices tell of their targets, as JSON for `stria mgs rebuild`. Nothing is written. Servers may have the devices in use: without a management service no epoch changes'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "list" -d 'Show the nodes of the cluster map: id, name, addresses and targets. Several servers on one host are several nodes'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from node" -f -a "remove" -d 'Remove a node without targets from the cluster map. Without --confirm it only shows the node, and ends with exit code 1'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mirror" -f -a "list" -d 'Show each mirror: its members, their hosts and states, the primary, the epoch. A target without a second member is a mirror of one'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mirror" -f -a "status" -d 'Show one mirror: what its members tell of themselves, what one of them waits for, and the next step'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mirror" -f -a "switch" -d 'Have the other member of a mirror become its primary, without a stop. Programs wait for a moment'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mirror" -f -a "verify" -d 'Compare the content of both members while the file system is in use. A range of an OST that differs gets the primary\'s content at both. Records of an MDT are compared only; the command names the next step'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mirror" -f -a "resync" -d 'Have the follower of a mirror, whose content is in doubt, take all content of the primary anew. There is one copy until that has ended'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from server" -f -a "drain" -d 'Hand over each mirror whose primary is on this host, without a stop. It stays in sync as a follower, and may be stopped then'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from server" -f -a "rejoin" -d 'Hand back to this host the mirrors whose first member is there, after a drain or a restart'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from server" -f -a "balance" -d 'Hand over mirrors so that the first member of each is the primary again: then primaries alternate between the servers'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from nodemap" -f -a "add" -d 'Add or change a nodemap. Options that are not given stay as they are; a new nodemap has the given effects only'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from nodemap" -f -a "modify" -d 'Add or change a nodemap. Options that are not given stay as they are; a new nodemap has the given effects only'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from nodemap" -f -a "list" -d 'List the nodemaps in the order in which they are looked at'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from nodemap" -f -a "test" -d 'Show which nodemap a node takes, and what it does to a caller. Nothing is changed, and no node is asked'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from nodemap" -f -a "remove" -d 'Remove a nodemap. Its nodes take the next one that matches'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from gateway" -f -a "nfs" -d 'NFS 3 and 4 by NFS-Ganesha (packages nfs-ganesha, nfs-ganesha-vfs)'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from gateway" -f -a "smb" -d 'SMB by Samba (packages samba, samba-vfs-modules)'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "list" -d 'The plans that `stria bench run` knows by name: what each measures, and the study that it repeats'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "show" -d 'A plan at a scale on this machine: steps, points, phases, sizes, time, space, and the steps that it would skip'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "validate" -d 'Look for all that cannot work in a plan, at each of its scales, before anything is run. Exit code 1: something was found'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "quick" -d 'N-N and N-1 sequential, 4 KiB random, mdtest-like files, fsync and latency: each row four times, content verified'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "run" -d 'Run a plan in a directory of any mounted file system; the result is a directory with records, tables, figures and a report page'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "worker" -d 'Do what is read from standard input: what `stria bench run` starts'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "host" -d 'Start workers on this host for the coordinator that standard input comes from: what `--launch` starts'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "compare" -d 'Two results side by side: ratio with its 95 % interval, and a test whether it is more than chance. Exit code 1: a row is worse'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "report" -d 'Make the report of a result again from its records: a page that opens anywhere, CSV and JSON with every number'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "ior" -d 'IOR\'s command line: -a POSIX -w -r -b -t -s -F -o -e -C -k -i and others; -np N says how many workers. Prints IOR\'s table'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "mdtest" -d 'mdtest\'s command line: -d -n -I -b -z -L -u -F -D -w -e -y -N -i -C -T -E -r and others; -np N says how many workers. Prints its table'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from lease" -f -a "list" -d 'Show which client holds a lease of which file\'s content, of which kind, or the exclusive lease of which directory, and whether another client waits for it. (`stria client list` counts leases of names.)'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mm" -f -a "mmgetstate" -d 'Show the state of nodes'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mm" -f -a "mmlsfs" -d 'Show attributes of file systems'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from client" -f -a "list" -d 'Show each client: its session, when it was heard of last, and how much it may cache'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from client" -f -a "evict" -d 'End a client\'s session, as if the client were dead: its leases, locks and unlinked files end, and its open files are `EIO` there. The client goes on with a new session. Without --yes it only shows what would end'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mdt" -f -a "bench" -d 'Measure the metadata engine on a device, beside ext4. DEVICE IS OVERWRITTEN: all that it holds is lost'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mdt" -f -a "backup" -d 'Write all records of the MDT as they are now to a file, while it serves or while it is stopped. Objects are not in it'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mdt" -f -a "restore" -d 'Make an MDT from a backup, in the place of one that is lost. What came after the backup is not in it: see `stria fsck` afterwards'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mdt" -f -a "stat" -d 'Show what MDTs hold: their records, the room that these take, and how large content may be that lies with them. Shows also their memory, the log, and how long changes waited for what other clients cache'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mdt" -f -a "bench-client" -d 'Asks a server by TCP; started by `bench`'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from ost" -f -a "bench" -d 'Measure the OST engine on a device, beside fio. DEVICE IS OVERWRITTEN: all that it holds is lost'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from ost" -f -a "space" -d 'Show how the space of OSTs is used: free, used, waiting, reserved, granted to clients; waste by sub-block class; how free space and objects are fragmented. It looks at every object, a few at a time; nobody waits for it'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from ost" -f -a "stat" -d 'Show what OSTs wrote since their start: sizes of device writes by purpose, write amplification, the small-write log, the index in memory, flushes, and drive writes per day against what the drive is rated for'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from ost" -f -a "waste" -d 'Compare what a mix of files takes on an OST with sub-blocks as large as each write needs, and with fixed ones as other file systems have them. Sizes are log-uniform: each doubling has as many files. Nothing is written'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from net" -f -a "list" -d 'List the nets of a cluster: how many nodes and routers are on each, and whether this host is'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from net" -f -a "show" -d 'Show the NIDs on each net, and whether they answer to this host. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from net" -f -a "ping" -d 'Ask the servers at these NIDs whether they answer, by the way that this host\'s nets and routes give. Exit code 1 if one does not'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from net" -f -a "stat" -d 'Show, for a mount and for each server, its connections by peer: frames and bytes since the process began, requests under way, how often requests waited, connections opened and refused'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from net" -f -a "trace" -d 'Show frames that a mount and the servers send and receive, from now on until Ctrl-C. Tracing is off otherwise, and goes off 10 s after the last look. Content is not shown'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from route" -f -a "add" -d 'Add a route to the map. Hosts learn of it within a second'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from route" -f -a "del" -d 'Remove a route from the map. Connections by it go on until they end'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from route" -f -a "list" -d 'List the routes of the map'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from route" -f -a "check" -d 'Try every way from this host: each router by itself, and a server behind it. Exit code 1 if one does not work'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mkfs" -f -a "ost" -d 'Make an object storage target: the log, two checkpoint slots, and all the rest for data'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mkfs" -f -a "mdt" -d 'Make a metadata target: a root directory, and the whole device for the log and two checkpoint slots'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mgs" -f -a "move" -d 'Copy the cluster map from a directory into etcd. The management service must be stopped. Refused if etcd has a map. The directory stays as it is: keep it as a backup, and start no management service with it any more'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from mgs" -f -a "rebuild" -d 'Make a cluster map that was lost with all its copies, from the superblocks of all targets: `stria target show` prints them on each server. Refused if a map is there. Targets keep ids, indexes and content. File systems get new keys. Routes, nodemaps and revocation lists must be given again, and clients mount anew. A mirror of two with one member given makes no map, unless --without gives the other member up. Neither does a gap in the indexes of targets'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from router" -f -a "stat" -d 'Show a router\'s circuits by nets, file system and host: MB/s from the host and to it, stalls, and the processor time. Without --interval the rates are means since the router\'s start'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from router" -f -a "drain" -d 'Take no new circuits and end those that are idle, before the router is stopped. Hosts take other routers, and no program sees an error'
complete -c stria -n "__fish_stria_using_subcommand help; and __fish_seen_subcommand_from router" -f -a "resume" -d 'Take new circuits again after a drain'
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from show" -a "quick pixstor-nvme vss2249p fsx-lustre ess-coral lnet-routers ai-pipeline truth"
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from validate" -a "quick pixstor-nvme vss2249p fsx-lustre ess-coral lnet-routers ai-pipeline truth"
complete -c stria -n "__fish_stria_using_subcommand bench; and __fish_seen_subcommand_from run" -a "quick pixstor-nvme vss2249p fsx-lustre ess-coral lnet-routers ai-pipeline truth"
complete -c stria -n "__fish_stria_using_subcommand completions" -a "bash zsh fish"
