# Brings a commit into the quarantine /incoming, or finds that /mirror (read-only) has it.
#
# usage: fetch hash|name COMMIT URL yes|no       (the last: access must be proved even when the mirror has the commit)
# Prints "present HASH" or "new HASH". Exit status: 0; 20 the repository cannot be reached; 21 it can, and has no such
# commit; 22 our fault. What git says on standard error is kept for the message.
set -u
umask 022
kind=$1 want=$2 url=$3 proof=$4
mirror=/mirror/repo.git incoming=/incoming/repo.git refs=/tmp/refs
ulimit -f 33554432              # 512-byte blocks: no pack over 16 GiB

commit_in() { git -C "$1" rev-parse --verify -q "$2^{commit}"; }
list() { git ls-remote -q "$url" "$@" >"$refs"; }
ours() { echo "$1" >&2; exit 22; }

# The hash behind a reference of the listing; an annotated tag's commit ("^{}") rather than the tag.
lookup() {
        found=
        while read -r hash ref; do
                if [ "$ref" = "$1^{}" ]; then found=$hash; break; fi
                if [ "$ref" = "$1" ]; then found=$hash; fi
        done <"$refs"
        [ -n "$found" ]
}

short=no
if [ "$kind" = name ]; then
        list "$want" "$want^{}" || exit 20
        if lookup "$want" || lookup "refs/$want" || lookup "refs/tags/$want" || lookup "refs/heads/$want"; then
                want=$found
        else
                case $want in
                *[!0-9a-f]*|?|??|???|????|?????|??????)
                        echo "the repository has no branch or tag of this name" >&2; exit 21 ;;
                *) short=yes ;;
                esac
        fi
elif [ "$proof" = yes ]; then
        list HEAD || exit 20
fi
if [ -d "$mirror" ] && commit=$(commit_in "$mirror" "$want"); then
        echo "present $commit"; exit 0
fi

find /incoming -mindepth 1 -delete || ours "the quarantine cannot be emptied"
git init -q --bare "$incoming" || ours "the quarantine cannot be made"
if [ -d "$mirror" ]; then
        mkdir -p "$incoming/objects/info"
        echo "$mirror/objects" >"$incoming/objects/info/alternates"
        [ ! -f "$mirror/shallow" ] || cp "$mirror/shallow" "$incoming/shallow"
fi
get() { git -C "$incoming" fetch -q --no-tags --no-write-fetch-head --update-shallow "$url" "$@"; }
found() { commit=$(commit_in "$incoming" "$want"); }
# A server of plain files (http without git behind it) gives loose objects and its own packs, which need one another: they become
# one pack, for that is what is joined. A git server's answer is one pack already.
one_pack() {
        (
                cd "$incoming/objects" || exit 1
                set -- [0-9a-f][0-9a-f] pack/pack-*.idx
                [ "$1" != '[0-9a-f][0-9a-f]' ] || [ $# -gt 2 ] || exit 0
                {
                        find . -type f -path './[0-9a-f][0-9a-f]/*' | sed 's,^\./\(..\)/,\1,'
                        for index in pack/pack-*.idx; do
                                [ ! -f "$index" ] || git show-index <"$index" | cut -d ' ' -f 2
                        done
                } | sort -u | git -C "$incoming" pack-objects -q "$incoming/objects/pack/all" >/dev/null || exit 1
                rm -f pack/pack-*
                for made in pack/all-*; do
                        mv "$made" "pack/pack-${made#pack/all-}" || exit 1
                done
        )
}
done_new() {
        one_pack || ours "what was fetched cannot be packed"
        { echo "$commit"; git -C "$incoming" for-each-ref --format='%(objectname)'; } >/incoming/wanted || ours "the quarantine is not writable"
        echo "new $commit"; exit 0
}

# By hash first: it may be at the tip of nothing. A server may refuse that, or not have it: then what it shows is fetched.
heads='+refs/heads/*:refs/heads/*'
if [ $short = no ] && get "$want" "$heads"; then
        found || { echo "this hash is not a commit" >&2; exit 21; }
        done_new
fi
get "$heads" '+refs/tags/*:refs/tags/*' || exit 20
if found; then done_new; fi
get '+refs/pull/*/head:refs/pull/*' '+refs/merge-requests/*/head:refs/merge-requests/*' || exit 20
if found; then done_new; fi
echo "the repository has no such commit" >&2
exit 21
