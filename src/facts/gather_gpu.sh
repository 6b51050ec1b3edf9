# What gather.sh reads of GPUs, their drivers and what computes on them: functions alone, put before it.
# Nothing here wakes a device or starts a service.

gpu_memory() {
    [ -d /sys/module ] || return 0
    printf 'asked\n'
    value gttsize /sys/module/amdgpu/parameters/gttsize
    for module in ttm amdttm; do
        at=/sys/module/$module
        [ -d "$at/parameters" ] || continue
        printf 'module %s\n' "$module"
        printf 'page %s\n' "$(getconf PAGESIZE)"
        value pages_limit "$at/parameters/pages_limit"
        value page_pool_size "$at/parameters/page_pool_size"
        for holder in "$at"/holders/*; do
            [ ! -e "$holder" ] || printf 'holder %s\n' "${holder##*/}"
        done
    done
}

drivers() {
    [ -d /sys/module ] || return 0
    printf 'asked\n'
    [ ! -r /proc/driver/nvidia/version ] || sed -n '1s/^/nvidia /p' /proc/driver/nvidia/version
    for module in amdgpu nvidia nouveau i915 xe amdxdna; do
        at=/sys/module/$module
        [ -d "$at" ] || continue
        printf 'module %s\n' "$module"
        value version "$at/version"
        [ ! -r "$at/taint" ] || printf 'judged\n'
        value taint "$at/taint"
    done
}

firmware() {
    for card in /sys/class/drm/card*; do
        case ${card##*/} in *-*) continue ;; esac
        [ -d "$card/device/fw_version" ] || continue
        printf 'loaded %s\n' "${card##*/}"
        for file in "$card"/device/fw_version/*; do
            value "${file##*/}" "$file"
        done
    done
    # For root alone. One device may have several folders.
    for info in /sys/kernel/debug/dri/*/amdgpu_firmware_info; do
        [ -r "$info" ] || continue
        line=
        [ ! -r "${info%/*}/name" ] || IFS= read -r line <"${info%/*}/name"
        printf 'loaded %s\n' "$line"
        cat "$info"
    done
}

software() {
    printf 'asked\n'
    value rocm /opt/rocm/.info/version
    value cuda_text /usr/local/cuda/version.txt
    [ ! -r /usr/local/cuda/version.json ] || sed -n 's/^/cuda /p' /usr/local/cuda/version.json
    for driver in /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json; do
        [ ! -e "$driver" ] || printf 'vulkan_driver %s\n' "${driver##*/}"
    done
    for loader in /usr/lib/*/libvulkan.so.1 /usr/lib64/libvulkan.so.1 /usr/lib/libvulkan.so.1; do
        [ ! -L "$loader" ] || printf 'vulkan_loader %s\n' "$(readlink "$loader")"
    done
}

rdma() {
    [ -d /sys/class ] || return 0
    printf 'asked\n'
    for port in /sys/class/infiniband/*/ports/*; do
        [ -e "$port/state" ] || continue
        device=${port%/ports/*}
        printf 'port %s %s\n' "${device##*/}" "${port##*/}"
        for file in state phys_state rate link_layer; do
            value "$file" "$port/$file"
        done
        value firmware "$device/fw_ver"
        value netdev "$port/gid_attrs/ndevs/0"
        for net in "$device"/device/net/*; do
            [ ! -e "$net" ] || printf 'net %s\n' "${net##*/}"
        done
    done
}

# Packages whose versions matter here, by the names that the distributions have for them.
named_packages() {
    set -- linux-firmware linux-firmware-amdgpu linux-firmware-nvidia firmware-amd-graphics \
        firmware-nvidia-graphics firmware-nvidia-gsp amd-gpu-firmware nvidia-gpu-firmware \
        kernel-firmware-amdgpu kernel-firmware-nvidia amdgpu-dkms amdgpu-dkms-firmware amdgpu-install \
        rocm-core rocm-runtime hsa-rocr hip-runtime-amd \
        mesa mesa-vulkan-drivers mesa-dri-drivers libgl1-mesa-dri vulkan-radeon Mesa libvulkan_radeon \
        libvulkan1 vulkan-loader vulkan-icd-loader nvidia-container-toolkit
    if [ -s /var/lib/dpkg/status ]; then
        section named_packages
        within 5 dpkg-query -W -f='${db:Status-Status} ${Package} ${Version}\n' "$@" 'amdrocm-core*'
    elif command -v rpm >/dev/null; then
        section named_packages
        within 5 rpm -q --qf 'installed %{NAME} %{VERSION}-%{RELEASE}\n' "$@"
    elif command -v pacman >/dev/null; then
        section named_packages
        within 5 pacman -Q "$@" | sed 's/^/installed /'
    fi
}

# Lines of the kernel's log that tell of GPUs and their memory: the first of what it sets up, the
# last of what goes wrong.
kernel_log() {
    wrong='GPU reset|[Mm][Oo][Dd][Ee][12] reset|wedged|ring [^ ]* timeout|MES (failed|might)|NVRM: Xid|NV_ERR_NO_MEMORY'
    set_up='unknown parameter .* ignored|gttsize|of (VRAM|GTT) memory ready|VRAM: |amdgpu version|irmware load for|ailed to load .*firmware|atal error during GPU init|NVRM: loading'
    lines=$(kernel_lines dmesg)
    if [ -z "$lines" ] && command -v journalctl >/dev/null; then
        lines=$(kernel_lines within 3 journalctl -k -b -q --no-pager -o short-monotonic)
    fi
    [ -n "$lines" ] || return 0
    printf 'readable\n'
    case $lines in
    *' '*)
        printf '%s\n' "$lines" | grep -v -E "$wrong" | sed -n 2,80p
        printf '%s\n' "$lines" | grep -E "$wrong" | tail -n 120
        ;;
    esac | cut -c 1-400
}

# kernel_lines COMMAND…: of what it prints those lines, behind one that says that it prints any.
kernel_lines() {
    "$@" | sed -n -E -e '1{' -e h -e 's/.*/readable/p' -e g -e '}' -e '/[Cc]ommand line:/d' -e "/$wrong|$set_up/p"
}

# A service that is not running is not asked: that could start it.
docker_engine() {
    command -v docker >/dev/null || return 0
    version=$(within 3 docker --version)
    # Podman may go by that name.
    case $version in *odman*) return 0 ;; esac
    printf 'engine docker\n%s\n' "$version"
    if [ -e /run/docker.pid ] || [ -e "$XDG_RUNTIME_DIR/docker.pid" ] || [ -n "$DOCKER_HOST" ]; then
        told=$(within 4 docker info 2>&1)
        printf '%s\n' "$told"
        root=$(printf '%s\n' "$told" | sed -n 's/^ *Docker Root Dir: //p')
        [ -z "$root" ] || within 3 df -kP "$root"
    else
        printf 'stopped\n'
    fi
}

# Podman itself would set up its store.
podman_engine() {
    command -v podman >/dev/null || return 0
    printf 'engine podman\n'
    within 3 podman --version
    if [ "$uid" = 0 ]; then
        store=/var/lib/containers/storage
        set -- graphroot /usr/share/containers/storage.conf /etc/containers/storage.conf
    else
        printf 'rootless\n'
        store=${XDG_DATA_HOME:-$HOME/.local/share}/containers/storage
        set -- graphroot "${XDG_CONFIG_HOME:-$HOME/.config}/containers/storage.conf"
    fi
    key=$1
    shift
    for file in "$@"; do
        [ -r "$file" ] || continue
        set_to=$(sed -n "s/^ *$key *= *\"\\([^\"\$]*\\)\".*/\\1/p" "$file")
        [ -z "$set_to" ] || store=$set_to
    done
    printf 'store %s\n' "$store"
    while [ -n "$store" ] && [ ! -d "$store" ]; do store=${store%/*}; done
    within 3 df -kP "${store:-/}"
}

containers() {
    printf 'asked\n'
    for spec in /etc/cdi/*nvidia* /run/cdi/*nvidia*; do
        [ ! -e "$spec" ] || printf 'cdi %s\n' "${spec##*/}"
    done
    docker_engine
    podman_engine
}

# Builds of engines that are found by name. Devices are hidden from them: a version needs none.
engines() {
    printf 'asked\n'
    for tool in llama-server rpc-server ggml-rpc-server ollama; do
        command -v "$tool" >/dev/null || continue
        printf 'engine %s\npath %s\n' "$tool" "$(command -v "$tool")"
        within 3 env CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES= ROCR_VISIBLE_DEVICES= \
            GGML_VK_VISIBLE_DEVICES= "$tool" --version 2>&1 | sed -n 1,40p
    done
}

# What is asked of tools; beside all else.
gpu_tools() {
    section engines
    engines
    [ "$kernel" = Linux ] || {
        section ioreg
        ioreg -r -d 1 -c AGXAccelerator | grep gpu-core-count
        return 0
    }
    named_packages
    section kernel_log
    kernel_log
    section containers
    containers
    if [ -d /var/lib/dkms ] && command -v dkms >/dev/null; then
        section dkms
        within 4 dkms status 2>&1
    fi
    # Where its module is not loaded, the tool would load it.
    if [ -e /proc/driver/nvidia/version ] && command -v nvidia-smi >/dev/null; then
        section nvidia_smi
        within 5 nvidia-smi --query-gpu=index,name,pci.bus_id,driver_version,compute_cap,memory.total,mig.mode.current \
            --format=csv,noheader,nounits 2>&1
    fi
}
